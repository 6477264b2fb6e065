// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/file.h"
#include "allocator/base/ids.h"
#include "allocator/base/result.h"
#include "allocator/driver/fence_set.h"
#include "allocator/driver/handles.h"
#include "allocator/heap/heap_limits.h"
#include "allocator/heap/heap_stats.h"
#include "allocator/heap/heap_view.h"
#include "allocator/heap/placement_advisor.h"

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
