// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "torch_glue/model_state/managed_storage.h"

#include <atomic>
#include <cstdint>

namespace spillway {

/// Counts and reports the fetches of managed storages.
/// Threads: safe.
class StorageFetches {
 public:
  /// A storage of that class has been fetched to `at`.
  using Observer = void (*)(const void* at, ModelClass of);

  /// Sets the observer of all fetches; null: none. It must not allocate device memory.
  void set_observer(Observer observer) { observer_ = observer; }

  /// Counts the fetch of a storage to `at`, and reports it to the observer.
  void add(const void* at, ModelClass of, Bytes size) {
    fetched_ += size.count();
    if (const Observer observer = observer_.load(std::memory_order_relaxed)) observer(at, of);
  }

  /// Counts a fetch that add() has counted as one that was made before its use.
  void count_prefetch(Bytes size) { prefetched_ += size.count(); }

  [[nodiscard]] Bytes fetched() const { return Bytes{fetched_}; }

  [[nodiscard]] Bytes prefetched() const { return Bytes{prefetched_}; }

 private:
  std::atomic<std::uint64_t> fetched_{0};
  std::atomic<std::uint64_t> prefetched_{0};
  std::atomic<Observer> observer_{nullptr};
};

}  // namespace spillway
