// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/base/result.h"
#include "allocator/heap/heap.h"
#include "allocator/transfer/copy_engine.h"
#include "allocator/transfer/host_arena.h"

#include <atomic>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

namespace spillway {

/// The fate of the contents of paused memory.
///   kKept: a copy on the host is restored. kDiscarded: unspecified after the resume.
enum class Contents { kKept, kDiscarded };

struct PauseStats {
  Bytes paused;              // requested bytes of the paused blocks
  Bytes on_host;             // part of these with a copy on the host
  Bytes copied_out;          // by pauses, since creation
  Bytes copied_in;           // by resumes, since creation
  std::uint64_t blocks = 0;  // paused now
};

/// Releases the memory of allocated blocks, by tag, and restores it at the same addresses.
/// Requires: no work uses the blocks between the pause and the resume ("quiescent memory" in
/// docs/invariants.md). Accessing a paused block is undefined; it faults if its chunk was released
/// (Heap::evict).
///
/// A pause or a resume has two parts. begin_pause() and begin_resume() can fail, and then have
/// changed nothing. finish_pause() and finish_resume() cannot fail. To pause several devices, the
/// caller runs the first part on all of them. If one fails, it cancels the others.
///
/// Threads: safe. One thread calls both parts of an operation, and one operation runs at a time;
/// the runtime ensures that. Any thread may free blocks meanwhile.
/// Ownership: borrows heap, arena, copies and `offloaded`, the counter of bytes that are on the
/// host only (HeapOptions::offloaded).
class PauseManager {
 public:
  PauseManager(Heap& heap,
               HostArena& arena,
               CopyEngine& copies,
               std::atomic<std::uint64_t>& offloaded)
      : heap_(heap), arena_(arena), copies_(copies), offloaded_(offloaded) {}

  /// A block that is paused, or about to be.
  struct Block {
    driver::DevicePtr at;
    TagId tag = TagId::kUntagged;
    Bytes size;                    // as requested
    std::optional<HostSlot> copy;  // none if the contents are discarded
    driver::Fence copied;          // fence of the last copy, in either direction
    bool shared = false;           // exported to other processes
  };

  /// The blocks of an operation, between its two parts.
  using Blocks = std::vector<Block>;

  /// First part of a pause. `contents` kKept: copies the requested bytes of the blocks under `tags`
  /// to the host. kDiscarded: makes no copy. Blocks that are already paused are omitted.
  /// Stream: the host waits for all work submitted to the blocks' streams and other users so far,
  /// with either value of `contents` (counted in driver::Counters::host_syncs). Copies are ordered
  /// after that work and queued as one batch; the host waits for them too.
  /// Errors: kOutOfHostMemory, kDriver; kNotReady if a block is shared with other processes.
  /// Nothing has changed then.
  Result<Blocks> begin_pause(std::span<const TagId> tags, Contents contents);
  /// Second part: releases the memory. Returns the bytes released to the driver.
  Bytes finish_pause(Blocks blocks);
  /// Instead of the second part: nothing is paused, and the host copies are dropped.
  /// Stream: no wait.
  void cancel_pause(Blocks blocks);

  /// First part of a resume: maps memory at the old addresses and restores contents that were kept.
  /// Stream: the host waits for the copies (counted), so that any stream may use the blocks
  /// afterwards.
  /// Errors: kOutOfDeviceMemory, kDriver; all blocks stay paused then.
  Result<Blocks> begin_resume(std::span<const TagId> tags);
  /// Second part: the blocks' owners may use them again.
  void finish_resume(Blocks blocks);
  /// Instead of the second part: the blocks are paused again.
  /// Stream: may block the host, as Heap::evict().
  void cancel_resume(Blocks blocks);

  /// The owner of `at` is about to free it. If it is paused, its host copy is freed.
  void freed(driver::DevicePtr at) {
    if (any_.load(std::memory_order_relaxed)) forget(at);
  }

  /// The current tags of the paused blocks, which may have been retagged while paused.
  [[nodiscard]] std::set<TagId> tags();
  /// The requested bytes of the paused blocks under `tags`.
  [[nodiscard]] Bytes bytes_under(std::span<const TagId> tags) const;
  [[nodiscard]] PauseStats stats() const;

  /// Calls `look` with the host copy of the paused block at `at`, and its size. Returns false if
  /// there is none. The copy stays while `look` runs, because a lock is held. `look` must not call
  /// this object.
  template <typename Look>
  bool with_copy(driver::DevicePtr at, Look look) const {
    const Lock lock(mutex_);
    const auto found = paused_.find(at);
    if (found == paused_.end() || !found->second.copy) return false;
    look(found->second.copy->data(), found->second.size);
    return true;
  }

 private:
  Status leave(Blocks& blocks, Contents contents);
  Result<driver::Fence> copy_out(Blocks& blocks);
  Blocks take(std::span<const TagId> tags, std::span<const HeapBlockInfo> pinned);
  Status are_fetched(Blocks& blocks);
  Status copy_in_sync(Blocks& blocks);
  void keep(Blocks blocks);
  /// Unpins these blocks. Those that their owners freed meanwhile are freed now, with
  /// their copies.
  void unpin(std::span<const driver::DevicePtr> blocks);
  void forget(driver::DevicePtr at);
  void count(const Block& block) SPILLWAY_REQUIRES(mutex_);
  void uncount(const Block& block) SPILLWAY_REQUIRES(mutex_);

  Heap& heap_;
  HostArena& arena_;
  CopyEngine& copies_;
  std::atomic<std::uint64_t>& offloaded_;
  std::atomic<bool> any_{false};  // paused_ is not empty
  mutable Mutex mutex_;
  std::map<driver::DevicePtr, Block> paused_ SPILLWAY_GUARDED_BY(mutex_);
  PauseStats stats_ SPILLWAY_GUARDED_BY(mutex_);  // totals of paused_
};

}  // namespace spillway
