// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/file.h"
#include "allocator/base/ids.h"
#include "allocator/base/result.h"
#include "allocator/driver/fence_set.h"
#include "allocator/driver/handles.h"
#include "allocator/heap/heap_stats.h"
#include "allocator/heap/placement_advisor.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace spillway {

struct HeapState;

/// The limits of a heap's reserved bytes (Heap::limits). A value that refers to the heap.
/// Threads: safe.
class HeapLimits {
 public:
  explicit HeapLimits(HeapState& state) : state_(&state) {}

  /// The smallest target or budget that limits reserved bytes: a few pages of
  /// HeapView::granularity() bytes. Smaller ones are for tests. They limit allocated bytes, because
  /// fragmentation would dominate so few pages.
  [[nodiscard]] Bytes smallest_budget() const;

  /// Caps the bytes reserved from the driver; zero removes the cap.
  void set_limit(Bytes limit);
  [[nodiscard]] Bytes limit() const;

  /// Sets a soft limit in reserved bytes. Before the heap grows past it, cached memory is released,
  /// which may block the host. If that is not enough, the heap grows anyway. Zero: no soft limit.
  void set_soft_limit(Bytes limit);

  /// Caps the reserved bytes at a budget; zero: no cap. If more is reserved, cached memory is
  /// released, which may block the host. A request that would exceed the budget
  /// (would_exceed_budget) releases cached memory, then fails with kOutOfDeviceMemory. The caller
  /// can then free memory and retry, or call exceed_budget(). The current replay plan is kept. A
  /// caller with a budget below smallest_budget() sets none. end_step() removes the budget together
  /// with the target.
  void set_budget(Bytes budget);
  [[nodiscard]] Bytes budget() const;
  /// As set_budget(), for the whole process: end_step() returns to this budget.
  void hold_budget(Bytes budget);
  /// Whether reserving `size` bytes would exceed the budget, but not the limit.
  [[nodiscard]] bool would_exceed_budget(Bytes size) const;
  /// Raises the budget so that the heap can reserve `size` bytes more than now. set_budget()
  /// replaces the raised budget.
  void exceed_budget(Bytes size);

 private:
  HeapState* state_;
};

/// Reads a heap's memory in detail (Heap::view). A value that refers to the heap.
/// Threads: safe.
class HeapView {
 public:
  explicit HeapView(HeapState& state) : state_(&state) {}

  /// HeapStats::allocated without visiting the blocks; reserved() likewise.
  [[nodiscard]] Bytes allocated() const;
  [[nodiscard]] Bytes reserved() const;
  /// driver_allocations + driver_releases: changes whenever segments() gains or loses memory.
  [[nodiscard]] std::uint64_t mapping_changes() const;
  /// Number of times that stats(), stats_by_tier(), tags() and segments() have visited the blocks.
  /// For tests.
  [[nodiscard]] std::uint64_t walks() const;
  /// Statistics of the small tier and of all others: bytes that are allocated, free, reserved and
  /// stranded now, and cumulative totals; no peaks. driver_allocations counts the present chunks.
  /// Visits every block.
  [[nodiscard]] std::array<HeapStats, 2> stats_by_tier() const;
  /// Accounting of every tag that has, or had since reset_peaks(), an allocated block; by id.
  [[nodiscard]] std::vector<HeapTagInfo> tags() const;
  void reset_peaks();
  [[nodiscard]] std::vector<HeapSegmentInfo> segments() const;
  /// Memory by tag and stream, as out-of-memory errors print it.
  [[nodiscard]] std::string describe() const;
  /// The first inconsistency of the accounting; empty if there is none. For tests.
  [[nodiscard]] std::string check() const;
  /// The granularity of the device's physical memory.
  [[nodiscard]] Bytes granularity() const;

  /// All allocated blocks with this tag, in no particular order.
  [[nodiscard]] std::vector<HeapBlockInfo> blocks_of(TagId tag) const;

 private:
  HeapState* state_;
};

struct HeapOptions {
  /// Maximum number of bytes reserved from the driver; zero: limited by the device alone.
  Bytes limit;
  /// Bytes of offloaded storages, counted by residency; read when a peak is reached.
  const std::atomic<std::uint64_t>* offloaded = nullptr;
  /// Returns the name of a tag, for reports; called without the heap's lock. Null: reports print
  /// tag numbers.
  std::string (*name_of)(TagId) = nullptr;
  /// Makes replay plans: the addresses that requests of repeating steps get (end_step).
  bool replay = false;
};

/// Physical memory that other processes can map.
struct SharedMemory {
  struct Piece {
    File file;
    Bytes size;
  };

  driver::DevicePtr begin;    // of the first piece, in this process
  std::vector<Piece> pieces;  // adjacent, in address order
};

/// What a block holds.
enum class BlockUse : std::uint8_t {
  kAny,
  kStreamed,  // model state, which is offloaded and fetched again
};

/// A stream-ordered caching sub-allocator on virtual memory: one address reservation per device,
/// physical chunks mapped on demand, caches per stream and pool. Addresses of allocated blocks
/// never change. Blocks are 512-byte aligned.
///
/// Freed memory is reusable at once on its own stream. A freed block keeps the fences of copies
/// (add_fence) and of other streams that used it (record_use) until it is handed out again. Then
/// its stream waits for these fences on the device. Neither the host nor any other stream waits.
/// Free memory stays with its stream and pool. Another stream can get it only after its chunks are
/// released to the driver. Before a release, the host waits for the fences and for the stream.
///
/// Threads: safe. The heap calls no callback while it holds a lock.
/// Ownership: owns the reservation, the chunks and the timelines it creates for record_use. A
/// process that uses the heap from PyTorch never destroys it, because CUDA may be shut down by
/// then. The destructor is for tests. It requires that no block is allocated and that the device
/// has finished all work. It reads no fence, because timelines may be destroyed.
class Heap {
 public:
  static Result<std::unique_ptr<Heap>> create(const driver::Device& device,
                                              const HeapOptions& options);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  /// Allocates a block of at least `size` bytes for work on `stream`. Zero bytes give a null
  /// pointer. Allocated blocks of different pools never share a chunk; the first block of a pool
  /// creates it.
  /// Stream: usable on `stream` at once. The host waits only if cached memory must be released:
  /// beyond the soft limit, the target or the budget, or before an out-of-memory error.
  /// Errors: kOutOfDeviceMemory after all cached memory was released. Its detail is a report:
  /// requested, reserved, allocated and cached bytes, and allocated bytes per tag. There is no
  /// report if only the budget is exceeded (HeapLimits::set_budget). kInvalidArgument if `stream`
  /// is invalid, detected at its first block or at a wait. kDriver. After an error the heap is
  /// unchanged, except that cached memory may have been released.
  /// `use`: see PlacementAdvisor::set_streaming().
  Result<driver::DevicePtr> allocate(Bytes size,
                                     driver::Stream stream,
                                     TagId tag,
                                     PoolId pool = PoolId::kShared,
                                     BlockUse use = BlockUse::kAny);

  /// Frees a block; null is ignored. If no allocated block starts at `at`, counts a bad free and
  /// returns false.
  /// Stream: the next use of the memory is ordered after work already submitted to the block's
  /// stream, its other users and its fences.
  bool free(driver::DevicePtr at);

  /// Declares that `pool` makes no more allocations. Releases its free chunks now and the others as
  /// their blocks are freed. Unknown pools and kShared are ignored.
  /// Stream: may block the host, as may the frees (counted in driver::Counters::host_syncs).
  void release_pool(PoolId pool);

  /// Adds `fence` to the block that contains `at`. The block keeps it until it is handed out again.
  /// After the free the block is reusable at once: its stream then waits for `fence` on the device.
  /// Returns false if no allocated block contains `at`.
  bool add_fence(driver::DevicePtr at, driver::Fence fence);

  /// Records that work on `stream` also uses the block that contains `at` (PyTorch's
  /// record_stream). The stream may belong to another device. After the free, reuse waits for all
  /// work submitted to that stream before the free. Returns false if no allocated block contains
  /// `at`.
  bool record_use(driver::DevicePtr at, driver::Stream stream);

  /// Checks whether `stream` can use this heap's memory.
  /// Stream: no wait.
  /// Errors: kInvalidArgument if the stream is invalid; kDriver.
  Status check_stream(driver::Stream stream);

  /// The allocated block that contains `at`: its base and rounded size. The size is zero if there
  /// is none.
  [[nodiscard]] HeapBlockInfo find(driver::DevicePtr at) const;

  /// Whether `at` is one of this heap's addresses, allocated or not. Takes no lock.
  [[nodiscard]] bool owns(driver::DevicePtr at) const;

  /// Pins allocated blocks with these tags. `evicted` selects evicted blocks if true, and blocks
  /// with memory if false. Until unpin_blocks() a free of a pinned block is deferred, so that it
  /// can be copied, evicted or restored. This is unrelated to page-locked memory. Blocks that are
  /// already pinned are omitted.
  std::vector<HeapBlockInfo> pin_blocks(std::span<const TagId> tags, bool evicted);

  /// Ends pin_blocks() for these blocks. Frees the blocks that their owners freed in the meantime
  /// and returns them. Requires: the blocks are pinned.
  std::vector<driver::DevicePtr> unpin_blocks(std::span<const driver::DevicePtr> blocks);

  /// Fences after which the device has finished all work submitted so far to these blocks' streams
  /// and other users.
  /// Requires: allocated blocks.
  /// Errors: as Timeline::mark.
  Result<driver::FenceSet> last_uses(std::span<const driver::DevicePtr> blocks);

  /// Bytes that evicting all blocks with these tags would release to the driver. Chunks that
  /// contain any other allocated block do not count. Zero if one of the blocks is shared.
  [[nodiscard]] Bytes reclaimable(std::span<const TagId> tags) const;

  /// Releases the memory of allocated blocks and keeps their addresses. Returns the released bytes.
  /// A chunk is released if it contains only evicted blocks and free memory. It stays mapped if it
  /// contains another allocated block, or free memory of a pool that graph replays may write.
  /// Blocks that are already evicted are unaffected. Accessing an evicted block is undefined; it
  /// faults if its chunk was released.
  /// Requires: the device has finished all work on the blocks, and no work on them is submitted
  /// before restore().
  /// Stream: if a chunk also contains free memory, blocks the host until its last users finish
  /// (counted in driver::Counters::host_syncs). If the wait is impossible, the chunk stays mapped.
  /// Errors: kInvalidArgument if an address is not the start of an allocated block; kNotReady if a
  /// block is shared. After an error nothing has changed.
  Result<Bytes> evict(std::span<const driver::DevicePtr> blocks);

  /// Maps memory for evicted blocks at the same addresses, with unspecified contents. Ignores
  /// blocks that are not evicted. All or nothing: after an error the blocks stay evicted. An
  /// evicted block may also be freed without restore().
  /// Stream: usable at once. Waits on the host only before an out-of-memory error.
  /// Errors: kOutOfDeviceMemory after all cached memory was released; kDriver; kInvalidArgument if
  /// an address is not the start of an allocated block.
  Status restore(std::span<const driver::DevicePtr> blocks);

  /// Exports the memory of the allocated block that contains `at` to other processes. The block
  /// cannot be evicted until it is freed, because the other processes keep its memory mapped. Its
  /// chunks may contain other blocks too.
  /// Errors: kInvalidArgument if no allocated block contains `at`, the block is small, or the
  /// device's memory cannot be shared. kNotReady if the block is evicted or pinned. kDriver.
  /// After an error nothing has changed.
  Result<SharedMemory> share(driver::DevicePtr at);

  /// Changes the tag of the allocated block that contains `at`, in the accounting too. Returns
  /// false if there is no such block.
  bool retag(driver::DevicePtr at, TagId tag);

  /// Waits for the fences of free blocks and releases all free chunks to the driver. Chunks of
  /// pools that are not released stay. Returns the released bytes.
  /// Stream: may block the host (counted in driver::Counters::host_syncs).
  Bytes trim_sync();

  /// Lets `peer` read and write all present and future memory of this heap. A second call for the
  /// same peer has no effect.
  /// Errors: kDriver; nothing has changed then.
  Status enable_peer(DeviceId peer);

  /// Visits every block, as do most functions of view(). Too slow for each allocation.
  [[nodiscard]] HeapStats stats() const;

  /// Reads the heap's memory in detail.
  [[nodiscard]] HeapView view() const { return HeapView(*state_); }

  /// Limits of the reserved bytes.
  [[nodiscard]] HeapLimits limits() { return HeapLimits(*state_); }

  [[nodiscard]] HeapLimits limits() const { return HeapLimits(*state_); }

  /// Placement of repeating sequences of requests.
  [[nodiscard]] PlacementAdvisor placement() { return PlacementAdvisor(*state_); }

 private:
  friend struct HeapState;
  explicit Heap(std::unique_ptr<HeapState> state);
  /// allocate() and free() with and without step replay.
  Result<driver::DevicePtr> allocate_in_step(Bytes size,
                                             driver::Stream stream,
                                             TagId tag,
                                             PoolId pool);
  Result<driver::DevicePtr> allocate_anywhere(Bytes size,
                                              driver::Stream stream,
                                              TagId tag,
                                              PoolId pool);
  bool free_anywhere(driver::DevicePtr at);
  /// Returns `failed`, with the report appended if the code is kOutOfDeviceMemory.
  Status out_of_memory(Bytes size, const Status& failed);

  std::unique_ptr<HeapState> state_;
};

}  // namespace spillway
