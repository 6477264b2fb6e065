// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/base/pooled.h"
#include "torch_glue/saved_tensors/saved_storage.h"

#include <functional>
#include <memory>
#include <unordered_map>
#include <utility>

namespace spillway {

/// Finds the SavedStorage of a storage. An entry lives as long as some hook owns it.
/// Threads: safe. Ownership: one per process, never destroyed; owns no entry.
class StorageTable {
 public:
  static StorageTable& instance();

  std::shared_ptr<SavedStorage> of(const c10::Storage& storage, DeviceRuntime& device);
  /// Called by an ending SavedStorage; a newer one for the same storage stays.
  void forget(c10::StorageImpl* key);

 private:
  StorageTable() = default;

  LightMutex mutex_;
  using Entry = std::pair<c10::StorageImpl* const, std::weak_ptr<SavedStorage>>;
  std::unordered_map<c10::StorageImpl*,
                     std::weak_ptr<SavedStorage>,
                     std::hash<c10::StorageImpl*>,
                     std::equal_to<>,
                     PoolAllocator<Entry>>
      entries_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
