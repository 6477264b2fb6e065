// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"
#include "allocator/heap/heap.h"
#include "allocator/transfer/copy_engine.h"
#include "allocator/transfer/host_arena.h"

#include <atomic>
#include <span>
#include <vector>

namespace spillway {

struct ResidencyStats {
  Bytes stashed;    // bytes submitted for copy to the host, since creation
  Bytes fetched;    // bytes submitted for copy to the device, since creation
  Bytes on_host;    // in slots of existing stashes
  Bytes offloaded;  // part of these that is not on the device as well
  std::uint64_t stashes = 0;
  std::uint64_t fetches = 0;  // fetches, of any number of stashes each
  std::uint64_t dropped = 0;  // stashes that ended without a fetch
};

class Residency;

/// The host copy of one storage, or of a part of one, by Residency::stash. The destructor returns
/// its slot with the fences of the last copies (invariant 4 in docs/invariants.md).
///
/// Threads: confined. Ownership: owns the slot; borrows the Residency.
class Stash {
 public:
  Stash() = default;
  Stash(const Stash&) = delete;
  Stash& operator=(const Stash&) = delete;
  Stash(Stash&& other) noexcept = default;
  Stash& operator=(Stash&& other) noexcept;

  ~Stash() {
    if (slot_.data() != nullptr) drop();
  }

  [[nodiscard]] HostBytes bytes() const { return slot_.bytes(); }

  /// The fence of the copy to the host.
  [[nodiscard]] driver::Fence written() const { return written_; }

  /// Whether the source was in the heap, whose block then has the fence written().
  [[nodiscard]] bool in_heap() const { return in_heap_; }

  /// Marks the stash as offloaded again, or as resident; changes only the accounting.
  void set_offloaded(bool offloaded);

 private:
  friend class Residency;
  Stash(Residency& residency, HostSlot slot, driver::Fence written, bool in_heap);
  void is_fetched(driver::Fence read);
  void drop();

  HostSlot slot_;  // empty after a move
  driver::Fence written_;
  Residency* residency_ = nullptr;
  bool fetched_ = false;    // a fetch was begun; the slot has the latest of each stream
  bool offloaded_ = false;  // counted as not on the device
  bool in_heap_ = false;
};

/// A part of a storage to offload.
struct Leaving {
  driver::DevicePtr source;
  Bytes size;
};

/// A stash to fetch. Borrowed for the call.
struct Return {
  Stash* stash;
  driver::DevicePtr destination;
};

/// Copies quiescent storages to the host and back (docs/invariants.md: no new work on the bytes can
/// be issued while they are offloaded). The caller decides which.
///
/// Threads: safe for different stashes; two threads must not use one stash at once.
/// Ownership: borrows heap, arena, copies and `offloaded`, the counter of bytes that are on the
/// host only (HeapOptions::offloaded).
class Residency {
 public:
  Residency(Heap& heap, HostArena& arena, CopyEngine& copies, std::atomic<std::uint64_t>& offloaded)
      : heap_(heap), arena_(arena), copies_(copies), offloaded_(offloaded) {}

  /// Begins copying `size` bytes at `source` to the host. The device block may be freed at any time
  /// afterwards: a block of the heap carries the copy's fence (invariant 2 in docs/invariants.md).
  /// If `source` is not in the heap, the caller keeps it allocated until Stash::written() has
  /// passed. Stream: after everything submitted to `producer` so far; no host wait. Errors:
  /// kOutOfHostMemory, kDriver. Nothing has changed then.
  Result<Stash> stash(driver::DevicePtr source, Bytes size, driver::Stream producer);
  /// As above, for several parts of one storage, all or none; one fence for all.
  /// Requires: at least one.
  Result<std::vector<Stash>> stash(std::span<const Leaving> parts, driver::Stream producer);

  /// Begins copying the stash into `destination`, allocated on `consumer`. The host copy is kept,
  /// so it can be called again. Every stream that reads the destination must wait for the returned
  /// fence (driver::Timeline::wait). `priority`: kDemand if a stream or the host waits for the
  /// copy. Stream: after the copy to the host and everything submitted to `consumer` so far; no
  /// host wait. Errors: kDriver. The stash is unchanged then.
  Result<driver::Fence> fetch(Stash& stash,
                              driver::DevicePtr destination,
                              driver::Stream consumer,
                              CopyPriority priority = CopyPriority::kPrefetch);
  /// As above, for several stashes into one block; one fence for all. Requires: at least one.
  Result<driver::Fence> fetch(std::span<const Return> returns,
                              driver::Stream consumer,
                              CopyPriority priority);

  [[nodiscard]] ResidencyStats stats() const;

 private:
  friend class Stash;  // counts
  Heap& heap_;
  HostArena& arena_;
  CopyEngine& copies_;
  std::atomic<std::uint64_t> stashed_{0};
  std::atomic<std::uint64_t> fetched_{0};
  std::atomic<std::uint64_t> on_host_{0};
  std::atomic<std::uint64_t>& offloaded_;
  std::atomic<std::uint64_t> stashes_{0};
  std::atomic<std::uint64_t> fetches_{0};
  std::atomic<std::uint64_t> dropped_{0};
};

}  // namespace spillway
