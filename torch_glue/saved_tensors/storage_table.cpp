// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/storage_table.h"

namespace spillway {

StorageTable& StorageTable::instance() {
  static auto* const table = new StorageTable;
  return *table;
}

std::shared_ptr<SavedStorage> StorageTable::of(const c10::Storage& storage, DeviceRuntime& device) {
  std::shared_ptr<SavedStorage> known;  // whose end, which forgets it, is after the lock
  const LightLock lock(mutex_);
  std::weak_ptr<SavedStorage>& entry = entries_[storage.unsafeGetStorageImpl()];
  known = entry.lock();
  // A storage that was given other memory is another one: the entry's host copy is of what it was.
  if (known != nullptr && known->is_of(*storage.unsafeGetStorageImpl())) return known;
  auto made = std::allocate_shared<SavedStorage>(PoolAllocator<SavedStorage>(), storage, device);
  entry = made;
  return made;
}

void StorageTable::forget(c10::StorageImpl* key) {
  const LightLock lock(mutex_);
  const auto entry = entries_.find(key);
  if (entry != entries_.end() && entry->second.expired()) entries_.erase(entry);
}

}  // namespace spillway
