// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"

#include <c10/core/StorageImpl.h>
#include <c10/util/flat_hash_map.h>

#include <memory>

namespace spillway {

/// Finds what is known of a storage that autograd saves. An entry lives as long as some hook owns
/// it. Threads: safe. Ownership: one per process and kind, never destroyed; owns no entry.
template <typename Entry>
class StorageTable {
 public:
  static StorageTable& instance() {
    static auto* const table = new StorageTable;
    return *table;
  }

  /// Null where there is none.
  std::shared_ptr<Entry> find(c10::StorageImpl* key) {
    const LightLock lock(mutex_);
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : found->second.lock();
  }

  /// The one there is, where `same` is true of it, and otherwise what `make` gives, under the lock.
  template <typename Same, typename Make>
  std::shared_ptr<Entry> find_or_make(c10::StorageImpl* key, Same same, Make make) {
    std::shared_ptr<Entry> known;  // whose end, which forgets it, is after the lock
    const LightLock lock(mutex_);
    std::weak_ptr<Entry>& entry = entries_[key];
    known = entry.lock();
    if (known != nullptr && same(*known)) return known;
    std::shared_ptr<Entry> made = make();
    entry = made;
    return made;
  }

  /// In place of the one there is.
  void put(c10::StorageImpl* key, const std::shared_ptr<Entry>& entry) {
    const LightLock lock(mutex_);
    entries_.insert_or_assign(key, entry);
  }

  /// Called by an ending entry; a newer one for the same storage stays.
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
