// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"

#include <c10/core/StorageImpl.h>
#include <c10/util/flat_hash_map.h>

#include <memory>

namespace spillway {

/// Maps a storage that autograd saves to its entry. An entry lives as long as a hook owns it.
/// Threads: safe.
/// Ownership: one per process and type, never destroyed; owns no entry.
template <typename Entry>
class StorageTable {
 public:
  static StorageTable& instance() {
    static auto* const table = new StorageTable;
    return *table;
  }

  /// Null if there is none.
  std::shared_ptr<Entry> find(c10::StorageImpl* key) {
    const LightLock lock(mutex_);
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : found->second.lock();
  }

  /// The existing entry if `same` accepts it, otherwise the result of `make`, under the lock.
  template <typename Same, typename Make>
  std::shared_ptr<Entry> find_or_make(c10::StorageImpl* key, Same same, Make make) {
    // destroyed after the lock is released, because its destructor calls forget()
    std::shared_ptr<Entry> known;
    const LightLock lock(mutex_);
    std::weak_ptr<Entry>& entry = entries_[key];
    known = entry.lock();
    if (known != nullptr && same(*known)) return known;
    std::shared_ptr<Entry> made = make();
    entry = made;
    return made;
  }

  /// Replaces the existing entry.
  void put(c10::StorageImpl* key, const std::shared_ptr<Entry>& entry) {
    const LightLock lock(mutex_);
    entries_.insert_or_assign(key, entry);
  }

  /// Called by the destructor of an entry; a newer entry for the same storage stays.
  void forget(c10::StorageImpl* key) {
    const LightLock lock(mutex_);
    const auto found = entries_.find(key);
    if (found != entries_.end() && found->second.expired()) entries_.erase(found);
  }

 private:
  StorageTable() = default;

  LightMutex mutex_;
  ska::flat_hash_map<c10::StorageImpl*, std::weak_ptr<Entry>> entries_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
