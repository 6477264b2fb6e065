// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/unmanaged_storages.h"

#include "torch_glue/model_state/managed_storage.h"

#include <algorithm>

namespace spillway {

void UnmanagedStorages::add(const c10::Storage& storage, ResidentReason why) {
  const LightLock lock(mutex_);
  if (known_.size() >= most_) {
    std::erase_if(known_, [](const auto& each) { return each.second.storage.expired(); });
    most_ = std::max(most_, 2 * known_.size());
  }
  known_.try_emplace(storage.unsafeGetStorageImpl(), Entry{storage.getWeakStorageImpl(), why});
}

void UnmanagedStorages::read(ResidentCounts& counts) {
  std::vector<c10::intrusive_ptr<c10::StorageImpl>> alive;  // they may end here, without the lock
  const LightLock lock(mutex_);
  for (const auto& [address, entry] : known_) {
    alive.push_back(entry.storage.lock());
    if (!alive.back() || ManagedStorage::of(*alive.back()) != nullptr) continue;
    count(counts, entry.why, Bytes{alive.back()->nbytes()});
  }
}

}  // namespace spillway
