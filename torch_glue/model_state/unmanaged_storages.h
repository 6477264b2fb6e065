// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "torch_glue/model_state/resident_reason.h"

#include <c10/core/Storage.h>

#include <cstddef>
#include <unordered_map>

namespace spillway {

/// The storages of model state that are not managed, for statistics.
/// Threads: safe. Ownership: has weak references, which end some time after their storages.
class UnmanagedStorages {
 public:
  /// Repeated calls for one storage have no effect.
  void add(const c10::Storage& storage, ResidentReason why);

  /// Adds those that exist and are not managed by now.
  void read(ResidentCounts& counts);

 private:
  struct Entry {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    ResidentReason why;
  };

  LightMutex mutex_;
  // A storage with a weak reference keeps its address.
  std::unordered_map<const c10::StorageImpl*, Entry> known_ SPILLWAY_GUARDED_BY(mutex_);
  std::size_t most_ SPILLWAY_GUARDED_BY(mutex_) = 256;  // then those that have ended are removed
};

}  // namespace spillway
