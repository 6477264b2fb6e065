// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/mutex.h"
#include "allocator/driver/timeline.h"

#include <c10/core/Storage.h>

#include <atomic>
#include <cstddef>
#include <thread>
#include <vector>

namespace spillway {

/// Storages of other allocators that a copy still reads: held until it has passed (invariant 2 in
/// docs/invariants.md). Memory of Spillway's own heap never comes here: its blocks carry the fence
/// themselves.
///
/// Threads: safe; no lock is held while a storage is freed.
/// Ownership: one per process, never destroyed.
class PendingSources {
 public:
  static PendingSources& instance();

  void hold(c10::Storage storage, driver::Fence until);
  /// As hold(), for a storage that may already be added and that a later copy reads too.
  /// Requires: the earlier copies have passed when `until` has.
  void extend(c10::Storage storage, driver::Fence until);
  /// Releases the earliest entries until at most `in_flight` of this thread remain.
  /// Stream: the current stream of each entry's device waits for its copy; no host wait.
  void bound(std::size_t in_flight);

  /// Releases the storages whose copies have passed; true if there were any. No host wait.
  bool poll() { return any_ && poll_held(); }

  /// Whether an entry exists, from hold() until bound() or poll() has released it. An entry that
  /// poll() is about to free counts too, so that callers do not mistake it for another owner.
  [[nodiscard]] bool holds(const c10::StorageImpl* storage) const;

  [[nodiscard]] Bytes bytes() const;
  [[nodiscard]] Bytes bytes_peak() const;

 private:
  struct Held {
    c10::Storage storage;
    Bytes size;  // at the time of hold(); the owner may resize the storage
    driver::Fence until;
    std::thread::id saved_by;
  };

  bool poll_held();
  std::vector<Held> pop_oldest_over(std::size_t in_flight);

  PendingSources() = default;

  std::atomic<bool> any_{false};  // checked at every save; usually false
  mutable Mutex mutex_;
  std::vector<Held> held_ SPILLWAY_GUARDED_BY(mutex_);
  /// The entries that poll() is about to free. Weak references prevent reuse of their addresses.
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> leaving_ SPILLWAY_GUARDED_BY(mutex_);
  Bytes bytes_ SPILLWAY_GUARDED_BY(mutex_);
  Bytes bytes_peak_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
