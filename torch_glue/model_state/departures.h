// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/model_state/access_order.h"

#include <cstddef>
#include <unordered_map>

namespace spillway {

/// After which uses of a step storages left the device. It predicts which ones leave in the next
/// step before they are used again, so that they can be copied to the host while others are used.
/// Threads: confined; the caller holds its lock.
class Departures {
 public:
  /// Storage `id` leaves; its last use was the `use`-th one of the running step, from 1 on.
  void add(AccessOrder::Id id, std::size_t use) { running_[use] = id; }

  /// Likewise, of the last step: the storage has not been used since that ended.
  void add_to_last(AccessOrder::Id id, std::size_t use) { last_[use] = id; }

  /// Whether storage `id` left after that use of the last step, before its next use.
  [[nodiscard]] bool expected(AccessOrder::Id id, std::size_t use) const {
    const auto found = last_.find(use);
    return found != last_.end() && found->second == id;
  }

  void end_step() {
    last_.swap(running_);
    running_.clear();
  }

 private:
  std::unordered_map<std::size_t, AccessOrder::Id> last_;
  std::unordered_map<std::size_t, AccessOrder::Id> running_;
};

}  // namespace spillway
