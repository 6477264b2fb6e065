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
  /// Most bytes the heap may hold from the driver; zero: as much as the device gives.
  Bytes limit;
  /// Bytes of storages that are on the host instead of on the device, kept by residency; read when
  /// a peak is reached.
  const std::atomic<std::uint64_t>* offloaded = nullptr;
  /// The name of a tag, for reports; called without the heap's lock. Null: reports show numbers.
  std::string (*name_of)(TagId) = nullptr;
  /// Steps that repeat get the same addresses again (end_step).
  bool replay = false;
};

struct HeapStats {
  Bytes live;       // handed out and not freed, as rounded; evicted blocks included
  Bytes requested;  // handed out and not freed, as asked for
  Bytes held;       // physical bytes held from the driver
  Bytes allocated_peak;
  Bytes requested_peak;
  Bytes reserved_peak;
  Bytes offloaded_at_allocated_peak;
  Bytes offloaded_at_reserved_peak;
  Bytes evicted;                      // of live: blocks whose memory may be gone (evict)
  Bytes cached;                       // of held: free
  Bytes rounding;                     // waste: live - requested
  Bytes stranded;                     // waste: free, in chunks that hold a live block too
  std::uint64_t stranded_blocks = 0;  // free ones that this is in
  Bytes pending;                  // waste: free, but with a fence that has not been seen to pass
  Bytes allocated_total;          // ever handed out, as rounded
  Bytes requested_total;          // ever handed out, as asked for
  Bytes held_total;               // ever taken from the driver
  std::uint64_t allocations = 0;  // since creation
  std::uint64_t frees = 0;
  std::uint64_t allocated_blocks = 0;
  std::uint64_t allocated_blocks_peak = 0;
  std::uint64_t driver_allocations = 0;  // chunks created since creation
  std::uint64_t driver_releases = 0;
  std::uint64_t fence_waits =
      0;  // stream waits made because a block was reused before its fence passed
  std::uint64_t out_of_memory = 0;    // times allocate() failed
  std::uint64_t bad_frees = 0;        // times free() was given what is no live block's start
  std::uint64_t over_budget = 0;      // allocations that exceeded the budget (exceed_budget)
  std::uint64_t plan_replayed = 0;    // of allocations: at the places of a plan (end_step)
  std::uint64_t plan_mismatches = 0;  // steps that were not the planned one from some request on
};

/// What one tag's live blocks amount to.
struct HeapTagInfo {
  TagId tag = TagId::kUntagged;
  Bytes live;            // as rounded, evicted blocks included
  Bytes requested;       // as asked for
  Bytes evicted;         // of live
  Bytes allocated_peak;  // since creation or reset_peaks()
  std::uint64_t blocks = 0;
};

/// One block as a snapshot shows it.
struct HeapBlockInfo {
  driver::DevicePtr at;
  Bytes size;       // rounded
  Bytes requested;  // zero where free
  bool live = false;
  bool fenced = false;
  bool evicted = false;
  TagId tag = TagId::kUntagged;
  PoolId pool = PoolId::kShared;
  CUstream stream = nullptr;
  bool shared = false;  // with other processes
};

/// One contiguous range of addresses of one stream that has memory or evicted blocks.
struct HeapSegmentInfo {
  driver::DevicePtr at;
  Bytes size;
  CUstream stream = nullptr;
  PoolId pool = PoolId::kShared;
  std::vector<HeapBlockInfo> blocks;  // in address order, covering the segment
};

/// Physical memory as other processes can get hold of it.
struct SharedMemory {
  struct Piece {
    File file;
    Bytes size;
  };

  driver::DevicePtr begin;    // of the first piece, here
  std::vector<Piece> pieces;  // side by side, in address order
};

/// A stream-ordered caching sub-allocator on virtual memory: one address reservation per device,
/// physical chunks mapped on demand, caches per stream and pool. Addresses of live blocks never
/// move. Blocks are 512-byte aligned.
///
/// Free memory is reused at once on its own stream. A block that was freed while a copy or another
/// stream still uses it carries those fences; the code that is handed that block gets it after a
/// stream wait on them, and nothing else waits.
///
/// Threads: safe. Its locks are innermost: nothing is called back under them.
/// Ownership: owns the reservation, the chunks and the timelines it makes for record_use. Never
/// destroyed in a process that has used it from PyTorch (CUDA may be gone); the destructor is for
/// tests and requires that no block is live and that the device is done with all of them. It looks
/// at no fence: their timelines may be gone.
class Heap {
 public:
  /// Targets and budgets of fewer pages (granularity()) are for tests: fragmentation is
  /// no small share of them, and they count what is allocated.
  static constexpr std::uint64_t kFewestPages = 16;

  static Result<std::unique_ptr<Heap>> create(const driver::Device& device,
                                              const HeapOptions& options);
  ~Heap();
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  /// A block of at least `size` for work on `stream`. Zero bytes give a null pointer. Live blocks
  /// of different pools never share a chunk; a pool begins with its first block.
  /// Stream: usable on `stream` at once; no host wait, except before the out-of-memory error.
  /// Errors: kOutOfDeviceMemory after all cached memory was released; the detail is a report:
  /// asked, held, live and cached bytes, and live bytes per tag. kInvalidArgument where `stream` is
  /// found to be none, at its first block or where it had to wait. kDriver. The heap is then as it
  /// was.
  Result<driver::DevicePtr> allocate(Bytes size,
                                     driver::Stream stream,
                                     TagId tag,
                                     PoolId pool = PoolId::kShared);

  /// Gives a block back (null is ignored). Returns false, counts it, and does nothing where `at` is
  /// not the start of a live block.
  /// Stream: work already submitted to its own stream, its uses and its fences come first for
  /// the code that gets it next.
  bool free(driver::DevicePtr at);

  /// Nothing more will be allocated from `pool`: its free chunks are released now, the others
  /// when a block in it is freed. Unknown pools and kShared are ignored.
  /// Stream: may block the host, as may the frees (counted in driver::Counters::host_syncs).
  void release_pool(PoolId pool);

  /// The block around `at` must not be reused before `fence` passes; kept until the block is handed
  /// out again. Returns false where `at` is not inside a live block.
  bool add_fence(driver::DevicePtr at, driver::Fence fence);

  /// The block around `at` is also used by work on `stream` (PyTorch's record_stream), which may be
  /// another device's: reuse waits for what that stream has been given by the time of the free.
  /// Returns false where `at` is not inside a live block.
  bool record_use(driver::DevicePtr at, driver::Stream stream);

  /// Whether `stream` can use this heap's memory. Stream: no wait. Errors: kInvalidArgument for
  /// what is no stream; kDriver.
  Status check_stream(driver::Stream stream);

  /// The live block around `at`: its base and rounded size; size zero where there is none.
  [[nodiscard]] HeapBlockInfo find(driver::DevicePtr at) const;

  /// Whether `at` is one of this heap's addresses, live or not. Takes no lock.
  [[nodiscard]] bool owns(driver::DevicePtr at) const;

  /// Every live block with this tag, in no order.
  [[nodiscard]] std::vector<HeapBlockInfo> blocks_of(TagId tag) const;

  /// Holds the live blocks with these tags that are evicted, or those that are not: until
  /// unpin_blocks() no free takes one offloaded, so that it can be copied, evicted or restored
  /// meanwhile. Blocks that are held already are left out.
  std::vector<HeapBlockInfo> pin_blocks(std::span<const TagId> tags, bool evicted);

  /// Ends hold() for these blocks. Those that their owners freed meanwhile are freed now, and
  /// returned. Requires: they are held.
  std::vector<driver::DevicePtr> unpin_blocks(std::span<const driver::DevicePtr> blocks);

  /// After these fences the device is done with all work on the blocks that their streams and other
  /// users have been given so far. Requires: live blocks. Errors: as Timeline::mark.
  Result<driver::FenceSet> last_uses(std::span<const driver::DevicePtr> blocks);

  /// How many bytes evicting all blocks with these tags would release to the driver, as far as no
  /// other live block is in their chunks; none where one of them is shared.
  [[nodiscard]] Bytes reclaimable(std::span<const TagId> tags) const;

  /// Takes the memory of live blocks offloaded while their addresses stay: every chunk that holds
  /// only evicted blocks and free memory goes back to the driver; one that also holds another live
  /// block stays mapped, as does one that holds free memory of a pool where that is written to.
  /// Touching an evicted block is undefined (it faults where its chunk has gone). Gives the bytes
  /// that went back. Blocks that are evicted already stay so. Requires: the device is done with the
  /// blocks, and nothing issues work on them before restore(). Stream: where such a chunk holds
  /// free memory too, blocks the host until its last users are done (counted in
  /// driver::Counters::host_syncs); what cannot be waited for stays mapped. Errors:
  /// kInvalidArgument where one of them is not the start of a live block; kNotReady where one is
  /// shared; nothing has changed then.
  Result<Bytes> evict(std::span<const driver::DevicePtr> blocks);

  /// Gives evicted blocks memory again at the same addresses, with unspecified contents; blocks
  /// that are not evicted are left alone. All or nothing: on failure they stay evicted. An evicted
  /// block may be freed instead. Stream: usable at once; no host wait, except before the
  /// out-of-memory error. Errors: kOutOfDeviceMemory after all cached memory was released;
  /// kDriver; kInvalidArgument where one of them is not the start of a live block.
  Status restore(std::span<const driver::DevicePtr> blocks);

  /// The memory that the live block around `at` lies in, for other processes. Until it is freed the
  /// block cannot be evicted: its memory would part from theirs. Its chunks may hold other blocks
  /// too. Errors: kInvalidArgument where `at` is in no live block, in a small one, or on a device
  /// whose memory cannot be shared; kNotReady where it is evicted or held; kDriver. Nothing has
  /// changed then.
  Result<SharedMemory> share(driver::DevicePtr at);

  /// The live block around `at` is for `tag` from now on, in the accounting too. Returns false
  /// where `at` is not inside a live block.
  bool retag(driver::DevicePtr at, TagId tag);

  /// Waits for the fences of free blocks and returns all free chunks to the driver, except those of
  /// pools that are not released; returns how many bytes. Stream: may block the host (counted in
  /// driver::Counters::host_syncs).
  Bytes trim_sync();

  /// The program's step is over; does nothing but with HeapOptions::replay. When two steps in a row
  /// made the same requests, those of the busiest stream get places that are planned together: in
  /// the steps after them, the same request gets the same address, with hardly more memory than is
  /// live. Each request's size and stream are checked, and that its place is free. From the first
  /// difference on, the rest of the step is served as without a plan; after three such steps in a
  /// row the plan is given up and another one looked for. No plan for what outlives its step, is
  /// used by other streams or copies, or is of a pool. trim_sync() ends a plan; where memory runs
  /// out, there are no more plans. Stream: blocks the host where a plan begins or ends.
  void end_step();

  /// Caps the bytes held from the driver; zero removes the cap.
  void set_limit(Bytes limit);
  [[nodiscard]] Bytes limit() const;

  /// Cached memory is released before the heap grows past this many bytes, which may block the
  /// host; it still grows where that is not enough. Zero: never.
  void set_soft_limit(Bytes limit);

  /// The heap may hold that much, and rather does than let a stream wait for memory that a copy
  /// still reads: up to there it grows first, and free memory that need not be waited for lies
  /// apart from what must be. Where more is held, cached memory is released, which may block the
  /// host: in the first few of the calls with one target, which come between steps.
  /// Zero: streams wait before the heap grows. end_step() ends a target that was not set again in
  /// the step.
  void set_target(Bytes target);
  /// Caps the reserved bytes at a budget, from now on; zero: no cap. Where more is reserved, cached
  /// memory is released, which may block the host. Requests that it has no room
  /// for fail with kOutOfDeviceMemory (passes_budget) after cached memory was released, so that
  /// their caller can free memory and try again; plans of end_step() stay. end_step() ends it with
  /// the target.
  void set_budget(Bytes budget);
  [[nodiscard]] Bytes budget() const;
  /// Whether a failed request of `size` bytes is one that the budget has no room for, although the
  /// limit has.
  [[nodiscard]] bool passes_budget(Bytes size) const;
  /// Lets the heap reserve `size` more bytes than it has now, beyond its budget, until that is set
  /// again.
  void exceed_budget(Bytes size);
  /// The most bytes reserved since the target was set; zero where there is none.
  [[nodiscard]] Bytes most_reserved() const;
  /// HeapStats::stranded when the target was set last, or when last no plan was followed then, but
  /// for the memory of plans. None where there is no target, or one of a few pages.
  [[nodiscard]] std::optional<Bytes> stranded_at_target() const;
  /// By how much the last plan was too large for the target that there is, and was not followed
  /// therefore, which happens a few times for each target; tells it once.
  Bytes take_plan_shortfall();
  /// What steps that were planned with a target remake while that of the step before is still
  /// there, as a batch: plans leave this much of the room. Zero until it is known.
  [[nodiscard]] Bytes double_buffered() const;
  /// What an optimizer makes in its first step stays. From now on to the step's end large blocks
  /// share no chunk with those from before, which go; no more once end_step() has found nothing new
  /// of them live. Nothing where there is no target, or one of a few pages.
  void begin_optimizer_phase();
  /// The most bytes that were held since then, where the running step has followed a plan, so that
  /// steps like it will hold that again; else zero. None where there is no target.
  [[nodiscard]] std::optional<Bytes> peak_reserved_following_plan() const;
  /// Memory of a plan has been mapped in the running step, or is to be in the next ones: that holds
  /// up the host.
  [[nodiscard]] bool maps_plan() const;

  /// What the device's physical memory comes in multiples of.
  [[nodiscard]] Bytes granularity() const;

  /// Lets `peer` read and write all memory of this heap, now and in future. CurrentOp it twice
  /// changes nothing. Errors: kDriver; nothing has changed then.
  Status enable_peer(DeviceId peer);

  /// Visits every block, as stats_by_tier(), tags() and segments() do: not for each allocation.
  [[nodiscard]] HeapStats stats() const;
  /// As in stats(), without visiting the blocks.
  [[nodiscard]] Bytes live() const;
  [[nodiscard]] Bytes held() const;
  /// driver_allocations + driver_releases: it changes whenever segments() gets or loses memory.
  [[nodiscard]] std::uint64_t mapping_changes() const;
  /// How often stats(), stats_by_tier(), tags() and segments() have visited the blocks. For tests.
  [[nodiscard]] std::uint64_t walks() const;
  /// Of the small tier and of all others, by walking the blocks: what is live, free, held and
  /// stranded now, and the totals of what was handed out; no peaks. driver_allocations are the
  /// chunks that are held now.
  [[nodiscard]] std::array<HeapStats, 2> stats_by_tier() const;
  /// The accounting of every tag that has or had a live block since the peaks were reset, by id.
  [[nodiscard]] std::vector<HeapTagInfo> tags() const;
  void reset_peaks();
  [[nodiscard]] std::vector<HeapSegmentInfo> segments() const;
  /// "who holds what": the text of the out-of-memory report.
  [[nodiscard]] std::string report() const;
  /// The first thing in the accounting that is wrong, empty where nothing is. For tests.
  [[nodiscard]] std::string check() const;

 private:
  struct State;
  explicit Heap(std::unique_ptr<State> state);
  /// allocate() and free(), where steps are replayed, and as they are where they are not.
  Result<driver::DevicePtr> allocate_in_step(Bytes size,
                                             driver::Stream stream,
                                             TagId tag,
                                             PoolId pool);
  Result<driver::DevicePtr> allocate_anywhere(Bytes size,
                                              driver::Stream stream,
                                              TagId tag,
                                              PoolId pool);
  bool free_anywhere(driver::DevicePtr at);
  /// `failed`, with the report where it says that memory ran out.
  Status out_of_memory(Bytes size, const Status& failed);

  std::unique_ptr<State> state_;
};

}  // namespace spillway
