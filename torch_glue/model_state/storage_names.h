// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "torch_glue/model_state/access_order.h"

#include <string>
#include <unordered_map>

namespace spillway {

/// The names of managed tensors, by their storages' identities, for reports.
/// Threads: safe.
class StorageNames {
 public:
  /// The gradient and the states of a parameter have the identities after its own, and autocast's
  /// cast of it the last one of these.
  static constexpr AccessOrder::Id kSlots = 16;

  /// Sets the name of a parameter or a buffer, such as "layers.0.weight".
  void set(AccessOrder::Id id, std::string name);

  /// That name, or "gradient of NAME", "state of NAME" and "cast of NAME" for what belongs to a
  /// parameter; empty if it is unknown.
  std::string of(AccessOrder::Id id);

 private:
  LightMutex mutex_;
  std::unordered_map<AccessOrder::Id, std::string> names_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
