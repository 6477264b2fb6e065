// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/model_state/access_order.h"

#include <cstddef>
#include <set>
#include <utility>

namespace spillway {

/// After which writes storages left the device in a step. It predicts which ones leave in the next
/// step before they are written again, so that they can be copied to the host long before. A write
/// is identified by its storage and the number of that storage's uses in the step so far: where two
/// steps differ, other storages are not affected.
/// Threads: confined; the caller holds its lock.
class Departures {
 public:
  /// Storage `id` leaves; its last write was its `use`-th use in the running step, from 1 on.
  void add(AccessOrder::Id id, std::size_t use) { running_.emplace(id, use); }

  /// Likewise, in the last step: the storage has not been written since that ended.
  void add_to_last(AccessOrder::Id id, std::size_t use) { last_.emplace(id, use); }

  /// Whether storage `id` left after it was written in that use of the last step, before its next
  /// write.
  [[nodiscard]] bool expected(AccessOrder::Id id, std::size_t use) const {
    return last_.contains({id, use});
  }

  void end_step() {
    last_.swap(running_);
    running_.clear();
  }

 private:
  using Writes = std::set<std::pair<AccessOrder::Id, std::size_t>>;

  Writes last_;
  Writes running_;
};

}  // namespace spillway
