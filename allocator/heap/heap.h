// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/file.h"
#include "allocator/base/ids.h"
#include "allocator/base/result.h"
#include "allocator/driver/fence_set.h"
#include "allocator/driver/handles.h"

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace spillway {

struct HeapOptions {
  /// Maximum number of bytes reserved from the driver; zero: limited by the device alone.
  Bytes limit;
  /// Bytes of offloaded storages, counted by residency; read when a peak is reached.
  const std::atomic<std::uint64_t>* offloaded = nullptr;
  /// Returns the name of a tag, for reports; called without the heap's lock. Null: reports print
  /// tag numbers.
  std::string (*name_of)(TagId) = nullptr;
  /// Plans the addresses of repeating steps (end_step).
  bool replay = false;
};

struct HeapStats {
  Bytes allocated;  // allocated bytes, rounded; includes evicted blocks
  Bytes requested;  // allocated bytes, as requested
  Bytes reserved;   // physical bytes allocated from the driver
  Bytes allocated_peak;
  Bytes requested_peak;
  Bytes reserved_peak;
  Bytes offloaded_at_allocated_peak;
  Bytes offloaded_at_reserved_peak;
  // part of allocated: evicted blocks; their memory is released unless another block shares the
  // chunk (evict)
  Bytes evicted;
  Bytes cached;  // part of reserved: free
  // Members marked "waste" count memory that the program cannot use.
  Bytes rounding;  // waste: allocated - requested
  // waste: free bytes in chunks that also contain an allocated block
  Bytes stranded;
  std::uint64_t stranded_blocks = 0;  // number of free blocks with such bytes
  Bytes pending;                      // waste: free, with a fence that has not been seen to pass
  Bytes allocated_total;              // cumulative, rounded
  Bytes requested_total;              // cumulative, as requested
  Bytes reserved_total;               // cumulative bytes reserved from the driver
  std::uint64_t allocations = 0;      // since creation
  std::uint64_t frees = 0;
  std::uint64_t allocated_blocks = 0;
  std::uint64_t allocated_blocks_peak = 0;
  std::uint64_t driver_allocations = 0;  // chunks created since creation of the heap
  std::uint64_t driver_releases = 0;
  std::uint64_t fence_waits =
      0;  // stream waits for blocks that were reused before their fences passed
  std::uint64_t out_of_memory = 0;  // failed calls of allocate()
  // calls of free() with an address at which no allocated block starts
  std::uint64_t bad_frees = 0;
  std::uint64_t over_budget = 0;      // allocations that exceeded the budget (exceed_budget)
  std::uint64_t plan_replayed = 0;    // part of allocations: at planned addresses (end_step)
  std::uint64_t plan_mismatches = 0;  // steps that diverged from the plan
};

/// Totals of one tag's allocated blocks.
struct HeapTagInfo {
  TagId tag = TagId::kUntagged;
  Bytes allocated;       // rounded; includes evicted blocks
  Bytes requested;       // as requested
  Bytes evicted;         // part of allocated
  Bytes allocated_peak;  // since creation or reset_peaks()
  std::uint64_t blocks = 0;
};

/// One block of a snapshot.
struct HeapBlockInfo {
  driver::DevicePtr at;
  Bytes size;       // rounded
  Bytes requested;  // zero if free
  bool allocated = false;
  bool fenced = false;
  bool evicted = false;
  TagId tag = TagId::kUntagged;
  PoolId pool = PoolId::kShared;
  CUstream stream = nullptr;
  bool shared = false;  // exported to other processes
};

/// A contiguous range of addresses of one stream. It has memory or evicted blocks.
struct HeapSegmentInfo {
  driver::DevicePtr at;
  Bytes size;
  CUstream stream = nullptr;
  PoolId pool = PoolId::kShared;
  std::vector<HeapBlockInfo> blocks;  // in address order; they cover the segment
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
  /// Targets and budgets of fewer than this many pages of granularity() bytes are for tests.
  /// Fragmentation would dominate their reserved bytes, so such budgets limit allocated bytes.
  static constexpr std::uint64_t kFewestPages = 16;

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
  /// requested, reserved, allocated and cached bytes, and allocated bytes per tag. kInvalidArgument
  /// if `stream` is invalid, detected at its first block or at a wait. kDriver. After an error the
  /// heap is unchanged.
  Result<driver::DevicePtr> allocate(Bytes size,
                                     driver::Stream stream,
                                     TagId tag,
                                     PoolId pool = PoolId::kShared);

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

  /// All allocated blocks with this tag, in no particular order.
  [[nodiscard]] std::vector<HeapBlockInfo> blocks_of(TagId tag) const;

  /// Pins allocated blocks with these tags. `evicted`: pins the evicted ones; otherwise the others.
  /// Until unpin_blocks() a free of a pinned block is deferred, so that it can be copied, evicted
  /// or restored. This is unrelated to page-locked memory. Blocks that are already pinned are
  /// omitted.
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

  /// Marks the end of the program's step; has an effect with HeapOptions::replay or a target. After
  /// two steps with the same requests, the heap plans addresses for those of the busiest stream. In
  /// later steps the same request gets the same address. The heap then reserves hardly more than
  /// the peak of the allocated bytes.
  ///
  /// The heap checks each request's size and stream, and that its address is free. After the first
  /// difference the rest of the step is served without the plan. After three such steps in a row
  /// (one with a target) the plan is dropped and the heap records steps again. Blocks of pools are
  /// not planned. Without a target, neither are blocks that outlive their step, nor those that
  /// other streams or copies use. trim_sync() ends a plan. After an out-of-memory error without a
  /// target there are no more plans.
  /// Stream: blocks the host when a plan begins or ends.
  void end_step();

  /// Caps the bytes reserved from the driver; zero removes the cap.
  void set_limit(Bytes limit);
  [[nodiscard]] Bytes limit() const;

  /// Sets a soft limit in reserved bytes. Before the heap grows past it, cached memory is released,
  /// which may block the host. If that is not enough, the heap grows anyway. Zero: no soft limit.
  void set_soft_limit(Bytes limit);

  /// Sets a target in reserved bytes. It is a preference and fails no request. Until the target is
  /// reached, the heap maps new memory rather than reuse a block whose fences are pending. Beyond
  /// the target it reuses such blocks first, then releases cached memory, which may block the host.
  /// If no free block fits even then, the heap grows past the target.
  ///
  /// Free memory with pending fences is not merged with other free memory. If more than the target
  /// is reserved, set_target() and end_step() release cached memory, which may block the host. They
  /// do so at most four times for each value of the target. Zero: no target; streams wait before
  /// the heap grows. end_step() removes a target that was not set again during the step.
  /// Requires: no step is running.
  void set_target(Bytes target);
  /// Caps the reserved bytes at a budget; zero: no cap. If more is reserved, cached memory is
  /// released, which may block the host. A request that would exceed the budget
  /// (would_exceed_budget) releases cached memory, then fails with kOutOfDeviceMemory. The caller
  /// can then free memory and retry, or call exceed_budget(). The current plan of end_step() is
  /// kept. end_step() removes the budget together with the target.
  void set_budget(Bytes budget);
  [[nodiscard]] Bytes budget() const;
  /// Whether reserving `size` bytes would exceed the budget, but not the limit.
  [[nodiscard]] bool would_exceed_budget(Bytes size) const;
  /// Raises the budget so that the heap can reserve `size` bytes more than now. set_budget()
  /// replaces the raised budget.
  void exceed_budget(Bytes size);
  /// Peak of the reserved bytes since the target was set; zero without a target.
  [[nodiscard]] Bytes most_reserved() const;
  /// HeapStats::stranded outside the memory reserved for plans (end_step), as of the last call of
  /// set_target() while no plan was followed. None without a target, or with a target of less than
  /// kFewestPages pages.
  [[nodiscard]] std::optional<Bytes> stranded_at_target() const;
  /// Shortfall of the last plan rejected for the current target; reading clears it. The heap
  /// rejects at most four plans for each value of the target, then follows the next one anyway.
  Bytes take_plan_shortfall();
  /// Bytes double-buffered across a step boundary, such as the next batch. Plans leave this much of
  /// the target free. Zero until known.
  [[nodiscard]] Bytes double_buffered() const;
  /// Starts the optimizer phase: until the step ends, large blocks get separate chunks. The first
  /// optimizer step allocates persistent state, which then shares no chunk with temporary blocks.
  /// Disabled once a step adds no persistent blocks. No effect without a target or with a target of
  /// few pages.
  void begin_optimizer_phase();
  /// Peak of the reserved bytes since the target was set, if the running step has followed a plan:
  /// similar steps will reserve the same. Zero if it has not; none without a target.
  [[nodiscard]] std::optional<Bytes> peak_reserved_following_plan() const;
  /// Whether some memory of the current plan was not mapped yet when the running step began.
  /// Mapping memory stalls the host.
  [[nodiscard]] bool maps_plan() const;

  /// The granularity of the device's physical memory.
  [[nodiscard]] Bytes granularity() const;

  /// Lets `peer` read and write all present and future memory of this heap. A second call for the
  /// same peer has no effect.
  /// Errors: kDriver; nothing has changed then.
  Status enable_peer(DeviceId peer);

  /// Visits every block, as do stats_by_tier(), tags() and segments(). Too slow for each
  /// allocation.
  [[nodiscard]] HeapStats stats() const;
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
  /// The text of the out-of-memory report: memory by tag and stream.
  [[nodiscard]] std::string report() const;
  /// The first inconsistency of the accounting; empty if there is none. For tests.
  [[nodiscard]] std::string check() const;

 private:
  struct State;
  explicit Heap(std::unique_ptr<State> state);
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

  std::unique_ptr<State> state_;
};

}  // namespace spillway
