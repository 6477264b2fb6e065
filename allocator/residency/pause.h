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

/// What becomes of the contents of paused memory.
///   kKept: a copy waits on the host and comes back. kDiscarded: unspecified after the resume.
enum class Contents { kKept, kDiscarded };

struct PauseStats {
  Bytes paused;              // asked for by their owners, of blocks that are paused now
  Bytes on_host;             // of those: with a copy on the host
  Bytes copied_out;          // by pauses, since creation
  Bytes copied_in;           // by resumes, since creation
  std::uint64_t blocks = 0;  // paused now
};

/// Takes the memory of live blocks offloaded, by tag, and brings it back at the same addresses:
/// quiescent memory (docs/invariants.md): the caller guarantees that no work uses the blocks in
/// between. A block that is touched while it is paused faults.
///
/// A pause, as a resume, has two parts: the first may fail and changes nothing then, the second
/// does not fail. Several devices are so paused all or none.
///
/// Threads: safe; the two parts of one move are called by one thread, and one move is made at a
/// time (the runtime sees to it). Blocks may be freed on any thread meanwhile.
/// Ownership: borrows heap, arena, copies and `offloaded`, the counter of bytes that are on the
/// host only (HeapOptions::offloaded).
class PauseManager {
 public:
  PauseManager(Heap& heap,
               HostArena& arena,
               CopyEngine& copies,
               std::atomic<std::uint64_t>& offloaded)
      : heap_(heap), arena_(arena), copies_(copies), offloaded_(offloaded) {}

  /// One block that is paused, or about to be.
  struct Block {
    driver::DevicePtr at;
    TagId tag = TagId::kUntagged;
    Bytes size;                    // as asked for
    std::optional<HostSlot> copy;  // none where the contents are discarded
    driver::Fence moved;           // the last copy, out or in
    bool shared = false;           // with other processes
  };

  /// What a move is about, between its two parts.
  using Blocks = std::vector<Block>;

  /// First part of a pause: copies what the blocks under `tags` were asked to hold to the host.
  /// Those that are paused already are left out. Stream: the copies come after all that the
  /// blocks' streams have been given, and are queued as one batch; then the host waits for them
  /// (counted in driver::Counters::host_syncs). Errors: kOutOfHostMemory, kDriver; kNotReady where
  /// one of them is shared with other processes. Nothing has changed then.
  Result<Blocks> begin_pause(std::span<const TagId> tags, Contents contents);
  /// Second part: the memory goes. Gives the bytes that went back to the driver.
  Bytes finish_pause(Blocks blocks);
  void cancel_pause(Blocks blocks);

  /// First part of a resume: memory at the old addresses, with the old contents where they were
  /// kept. Stream: the host waits for the copies in (counted), so that any stream may use the
  /// blocks afterwards. Errors: kOutOfDeviceMemory, kDriver; everything is paused as before then.
  Result<Blocks> begin_resume(std::span<const TagId> tags);
  /// Second part: the blocks' owners have them back.
  void finish_resume(Blocks blocks);
  void cancel_resume(Blocks blocks);

  /// The owner of `at` is about to free it: where it is paused, its host copy goes.
  void freed(driver::DevicePtr at) {
    if (any_.load(std::memory_order_relaxed)) forget(at);
  }

  /// The tags of paused blocks, as the heap has them now.
  [[nodiscard]] std::set<TagId> tags();
  /// What the paused blocks under `tags` were asked to hold.
  [[nodiscard]] Bytes bytes_under(std::span<const TagId> tags) const;
  [[nodiscard]] PauseStats stats() const;

  /// Calls `look` with the host copy of the paused block at `at`, and its size; false where there
  /// is none. The copy stays while `look` runs.
  template <typename Look>
  bool with_copy(driver::DevicePtr at, Look look) const {
    const Lock lock(mutex_);
    const auto found = paused_.find(at);
    if (found == paused_.end() || !found->second.copy) return false;
    look(found->second.copy->data, found->second.size);
    return true;
  }

 private:
  Status leave(Blocks& blocks, Contents contents);
  Result<driver::Fence> copy_out(Blocks& blocks);
  Blocks take(std::span<const TagId> tags, std::span<const HeapBlockInfo> held);
  Status come_back(Blocks& blocks);
  Status copy_in_sync(Blocks& blocks);
  void keep(Blocks blocks);
  /// Owners may free these blocks again; what they have freed meanwhile goes, its copy too.
  void let_go(std::span<const driver::DevicePtr> blocks);
  void forget(driver::DevicePtr at);
  void drop_copy(Block block);
  void count(const Block& block) SPILLWAY_REQUIRES(mutex_);
  void uncount(const Block& block) SPILLWAY_REQUIRES(mutex_);

  Heap& heap_;
  HostArena& arena_;
  CopyEngine& copies_;
  std::atomic<std::uint64_t>& offloaded_;
  std::atomic<bool> any_{false};  // something is in paused_
  mutable Mutex mutex_;
  std::map<driver::DevicePtr, Block> paused_ SPILLWAY_GUARDED_BY(mutex_);
  PauseStats stats_ SPILLWAY_GUARDED_BY(mutex_);  // paused_ in numbers
};

}  // namespace spillway
