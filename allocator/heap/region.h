// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/base/mutex.h"
#include "allocator/base/result.h"
#include "allocator/driver/handles.h"
#include "allocator/driver/timeline.h"
#include "allocator/heap/account.h"
#include "allocator/heap/accounting.h"
#include "allocator/heap/address_space.h"
#include "allocator/heap/backing.h"
#include "allocator/heap/block.h"
#include "allocator/heap/block_table.h"
#include "allocator/heap/free_bins.h"
#include "allocator/heap/range.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace spillway {

/// Small and large blocks are kept apart, so that a small persistent block does not split large
/// free memory.
enum class Tier : std::uint8_t {
  kSmall,
  kLarge,
  kReplay,      // both sizes, at addresses of a replay plan: ReplayRegion
  kPersistent,  // large: from optimizer phases, or model state that streams (PlacementAdvisor)
};

/// The properties that all blocks of a heap region share.
struct RegionKey {
  CUstream stream;
  PoolId pool;
  Tier tier;
  std::uint32_t index = 0;  // kReplay: another one while blocks of an earlier plan are allocated

  friend bool operator==(const RegionKey&, const RegionKey&) = default;
};

/// What may wait for the device.
enum class Waits : std::uint8_t {
  kNone,
  kOfStream,  // the heap region's stream, for copies and other streams that use free memory
  kOfHost,
};

/// References that the heap regions of one heap share.
struct RegionParts {
  driver::Device device;
  const AddressSpace& addresses;
  const Access& access;
  Accounting& accounting;
  driver::Timelines& timelines;
  SpareChunks& spares;
};

/// The blocks of one stream in one range of addresses. All its blocks are for work on that stream.
/// A freed block therefore needs no fence for the stream's own work. Once the stream has waited for
/// a fence, all its later work is ordered after it.
///
/// Threads: callers hold `mutex`; for mapping and unmapping they hold the heap's lock too, taken
/// first.
/// Ownership: owns the memory mapped in its range.
class alignas(64) Region {
 public:
  Region(const RegionParts& parts, RegionKey key, Range range);
  virtual ~Region() = default;
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  LightMutex mutex;

  [[nodiscard]] const RegionKey& key() const { return key_; }

  [[nodiscard]] const Range& range() const { return range_; }

  [[nodiscard]] driver::Stream stream() const { return driver::Stream(key_.stream, device_.id); }

  /// The account of its stream in the heap's accounting.
  [[nodiscard]] Account& account() const { return account_; }

  [[nodiscard]] const Backing& backing() const SPILLWAY_REQUIRES(mutex) { return backing_; }

  /// The first block in address order; follow Block::after.
  [[nodiscard]] virtual const Block* first() const SPILLWAY_REQUIRES(mutex) { return first_; }

  /// Brings the blocks and the heap's accounting of them up to date for reading: RegionView.
  virtual void show() SPILLWAY_REQUIRES(mutex) {}

  /// As show; the blocks may be changed after it: RegionLock.
  virtual void open() SPILLWAY_REQUIRES(mutex) {}

  /// Adds free memory, waits and calls to a heap's statistics.
  virtual void read(HeapStats& stats) const SPILLWAY_REQUIRES(mutex);

  /// The allocated blocks, by address.
  [[nodiscard]] const BlockTable& allocated() const SPILLWAY_REQUIRES(mutex) { return table_; }

  /// A free block of at least `size` bytes; null if the bounded search finds none. Prefers the
  /// exact size, else the smallest of the first few. Among equals it prefers a block whose fences
  /// have passed.
  Block* fitting(Bytes size) SPILLWAY_REQUIRES(mutex) { return fitting(size, kMaxLooked); }

  /// As fitting, but finds a block if there is one. After any_settled(): the smallest block without
  /// fences, else one whose fences pass first.
  Block* any_fitting(Bytes size) SPILLWAY_REQUIRES(mutex);
  /// The smallest block without fences; null if there is none. From now on a free block with fences
  /// is not merged with its neighbors. They can then be used without a wait.
  Block* any_settled(Bytes size) SPILLWAY_REQUIRES(mutex);
  /// Merges the free blocks that any_settled() has kept apart, then as any_fitting().
  /// Requires: any_fitting has found none.
  /// Stream: no wait.
  Block* any_joined(Bytes size) SPILLWAY_REQUIRES(mutex);

  /// Maps the fewest bytes that make a free block of `size` bytes, next to free memory if possible.
  /// Requires: any_fitting has found none.
  /// Returns that block, with the fences of all its parts. Stream: no wait.
  /// Errors: kOutOfDeviceMemory if the driver or the limit has no room or the addresses are used
  /// up; kDriver. Nothing is mapped then.
  Result<Block*> grow(Bytes size) SPILLWAY_REQUIRES(mutex);

  /// Drops the fences of a free block that have passed; true if none is left. Stream: no wait.
  bool seen_to_pass(Block* block) SPILLWAY_REQUIRES(mutex) {
    return block->ties == nullptr || forget_passed(block);
  }

  /// Allocates the first `size` bytes of a free block.
  /// Stream: the heap region's stream waits for the block's fences, unless DeferredWaits takes
  /// them. Errors: kDriver, kNotReady (Timeline::wait); the block is then unchanged.
  Result<Block*> take(Block* block, Bytes size, Bytes requested, TagId tag)
      SPILLWAY_REQUIRES(mutex);

  /// As take. Requires: the block has no fences (seen_to_pass).
  Block* take_settled(Block* block, Bytes size, Bytes requested, TagId tag)
      SPILLWAY_REQUIRES(mutex);

  /// Allocates a block in newly mapped memory, even if other memory is free.
  /// Errors: as Backing::map.
  Result<Block*> fresh(Bytes size, Bytes requested, TagId tag) SPILLWAY_REQUIRES(mutex);

  /// Frees an allocated block and merges it with its free neighbors. A part without memory becomes
  /// a gap or a hole.
  void give(Block* block) SPILLWAY_REQUIRES(mutex);

  /// Releases completely free chunks to the driver. Returns the released bytes.
  /// Stream: blocks the host until the device has finished with them. Chunks that cannot be waited
  /// for are kept.
  virtual Bytes trim() SPILLWAY_REQUIRES(mutex);

  /// Takes as many completely free chunks out of the heap region as make `enough` bytes, or all;
  /// those first that become free first. Returns their bytes. With Waits::kOfHost they are
  /// released, unless other streams still use them. Otherwise those become spare ones that map()
  /// would use, in stream order: another stream that uses one next waits (Backing::map). Stream: as
  /// `waits`. The host waits until the device has reached the call of trim_some that followed the
  /// last of these frees.
  Bytes trim_some(Bytes enough, Waits waits) SPILLWAY_REQUIRES(mutex);

  /// Bytes that trim_some can take with Waits::kNone.
  [[nodiscard]] Bytes movable() SPILLWAY_REQUIRES(mutex);

  /// Bytes that trim would release.
  [[nodiscard]] Bytes trimmable() SPILLWAY_REQUIRES(mutex);

  /// Heap::evict for allocated blocks of this heap region. Returns the released bytes.
  virtual Bytes evict(const std::vector<Block*>& blocks) SPILLWAY_REQUIRES(mutex);

  /// Maps memory for the parts of evicted blocks without memory and returns the ranges. Removes
  /// blocks that are not evicted from `blocks`.
  /// Errors: as Backing::map; nothing has changed then.
  virtual Result<std::vector<Range>> back(std::vector<Block*>& blocks) SPILLWAY_REQUIRES(mutex);
  /// Undoes back().
  virtual void unback(const std::vector<Block*>& blocks, const std::vector<Range>& ranges)
      SPILLWAY_REQUIRES(mutex);
  /// Marks the blocks of back() as no longer evicted.
  virtual void revive(const std::vector<Block*>& blocks) SPILLWAY_REQUIRES(mutex);

  /// Heap::share for an allocated block that is not evicted.
  Result<SharedMemory> share(Block* block) SPILLWAY_REQUIRES(mutex);

  /// The first inconsistency of the accounting; empty if there is none. For tests.
  [[nodiscard]] virtual std::string check() const SPILLWAY_REQUIRES(mutex);

  bool released SPILLWAY_GUARDED_BY(mutex) = false;  // whether its pool is released

 protected:
  /// Backing::map; marks stuck ranges as kStuck blocks.
  Status map(Range where,
             const std::vector<driver::DevicePtr>* cuts = nullptr,
             driver::FenceSet* uses = nullptr) SPILLWAY_REQUIRES(mutex);
  /// Blocks the host until the device has finished the work submitted to this heap region's stream;
  /// all work, if replays of graphs may use its memory.
  Status wait_for_stream_sync() SPILLWAY_REQUIRES(mutex);
  void hand_out(Block* block, Bytes requested, TagId tag) SPILLWAY_REQUIRES(mutex);
  static void promise_fences(Block* block);
  Status settle(Block* block) SPILLWAY_REQUIRES(mutex);
  /// Blocks the host until the fences of a free block have passed.
  Status settle_sync(Block* block) SPILLWAY_REQUIRES(mutex);

  bool scattered_ SPILLWAY_GUARDED_BY(mutex) = false;  // any_settled() keeps free blocks apart
  Account& account_;
  BlockTable table_ SPILLWAY_GUARDED_BY(mutex);
  Backing backing_ SPILLWAY_GUARDED_BY(mutex);
  // free, with a fence that has not been observed to pass
  Bytes pending_ SPILLWAY_GUARDED_BY(mutex);
  Bytes evicted_ SPILLWAY_GUARDED_BY(mutex);     // allocated
  HeapStats counts_ SPILLWAY_GUARDED_BY(mutex);  // calls, totals and waits

 private:
  /// Free blocks of one bin that one allocation examines.
  static constexpr int kMaxLooked = 16;
  /// Blocks of one size that one allocation compares if a copy still reads the first one.
  static constexpr int kMaxCompared = 64;

  /// Where to map, and the adjacent free blocks to merge with.
  struct Growth {
    Block* gap;
    Range where;
    Block* left;   // null if none
    Block* right;  // null if none
  };

  /// A chunk in a free block.
  struct FreeChunk {
    Block* block;
    Range where;
  };

  [[nodiscard]] std::vector<FreeChunk> free_chunks() const SPILLWAY_REQUIRES(mutex);
  std::vector<FreeChunk> movable_chunks(Waits waits) SPILLWAY_REQUIRES(mutex);
  Bytes move_out(Bytes enough, Waits waits) SPILLWAY_REQUIRES(mutex);
  static void keep_oldest(std::vector<FreeChunk>& chunks, Bytes enough);
  template <typename Leave>
  Bytes release(const std::vector<FreeChunk>& chunks, const Leave& leave) SPILLWAY_REQUIRES(mutex);
  Result<driver::Fence> mark() SPILLWAY_REQUIRES(mutex);
  Status wait_for_frees_sync(std::uint64_t freed_at) SPILLWAY_REQUIRES(mutex);
  Block* fitting(Bytes size, int most_looked) SPILLWAY_REQUIRES(mutex);
  Block* best_of(Block* list, Bytes size, int most_looked) SPILLWAY_REQUIRES(mutex);
  Block* first_to_pass(Block* list, Block* otherwise) SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] Block* smallest_settled(Bytes size) const SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] Block* first_fenced(Bytes size) const SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] std::optional<Growth> cheapest_growth(Bytes size) const SPILLWAY_REQUIRES(mutex);
  bool forget_passed(Block* block) SPILLWAY_REQUIRES(mutex);

  // The list of blocks: free blocks and gaps are listed and merged with neighbors of their kind.
  /// Merges adjacent free blocks whose fences have passed; with `all`, all adjacent free blocks.
  /// Stream: no wait.
  void join_free(bool all) SPILLWAY_REQUIRES(mutex);
  Block* cut_front(Block* block, Bytes size) SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] bool are_one(const Block& block, const Block* other) const SPILLWAY_REQUIRES(mutex);
  void forget_all_passed() SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] std::set<driver::DevicePtr> chunks_in_use() const SPILLWAY_REQUIRES(mutex);
  bool join_neighbors(Block* block) SPILLWAY_REQUIRES(mutex);
  void resize(Block* block, Bytes size) SPILLWAY_REQUIRES(mutex);
  void forget(Block* block) SPILLWAY_REQUIRES(mutex);
  Block* split(Block* block, Bytes size) SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] Range end_of_gap(Range gap, bool at_begin, Bytes size, bool& waits) const
      SPILLWAY_REQUIRES(mutex);
  static void tie(Block* block, const driver::FenceSet& uses);
  Block* carve(Block* block, Range where) SPILLWAY_REQUIRES(mutex);
  void absorb_after(Block* block) SPILLWAY_REQUIRES(mutex);
  Block* merge(Block* block) SPILLWAY_REQUIRES(mutex);
  void merge_and_list(Block* block) SPILLWAY_REQUIRES(mutex);
  void list(Block* block) SPILLWAY_REQUIRES(mutex);
  void unlist(Block* block) SPILLWAY_REQUIRES(mutex);
  void change_state(Block* block, Range where, BlockState state) SPILLWAY_REQUIRES(mutex);

  void open_hole(Block* hole) SPILLWAY_REQUIRES(mutex);
  void give_pieces(Block* block) SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] bool can_go(Block* from, Range chunk, bool& has_free) SPILLWAY_REQUIRES(mutex);
  void drop_free_parts(Block* from, Range chunk) SPILLWAY_REQUIRES(mutex);
  void settle_holes(Block* around) SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] std::vector<Range> missing(const std::vector<Block*>& blocks) const
      SPILLWAY_REQUIRES(mutex);

  const driver::Device device_;
  const RegionKey key_;
  const Range range_;
  driver::Timelines& timelines_;
  BlockStore records_ SPILLWAY_GUARDED_BY(mutex);
  FreeBins free_ SPILLWAY_GUARDED_BY(mutex);
  Block* first_ SPILLWAY_GUARDED_BY(mutex);
  Block* gaps_ SPILLWAY_GUARDED_BY(mutex);
  Bytes cached_ SPILLWAY_GUARDED_BY(mutex);  // free
  // Points of the stream, made by trim_some: what was freed before one is no longer
  // used once it has passed.
  std::deque<driver::Fence> marks_ SPILLWAY_GUARDED_BY(mutex);
  std::uint64_t next_mark_ SPILLWAY_GUARDED_BY(mutex) = 0;  // the number of the next one
};

/// Holds a heap region's lock for a scope that reads it.
class SPILLWAY_ATTRIBUTE(scoped_lockable) RegionView {
 public:
  explicit RegionView(Region& region) SPILLWAY_ATTRIBUTE(acquire_capability(region.mutex))
      : region_(region) {
    region_.mutex.lock();
    region_.show();
  }

  ~RegionView() SPILLWAY_ATTRIBUTE(release_capability()) { region_.mutex.unlock(); }

  RegionView(const RegionView&) = delete;
  RegionView& operator=(const RegionView&) = delete;

 private:
  Region& region_;
};

/// Holds a heap region's lock for a scope that changes it.
class SPILLWAY_ATTRIBUTE(scoped_lockable) RegionLock {
 public:
  explicit RegionLock(Region& region) SPILLWAY_ATTRIBUTE(acquire_capability(region.mutex))
      : region_(region) {
    region_.mutex.lock();
    region_.open();
  }

  ~RegionLock() SPILLWAY_ATTRIBUTE(release_capability()) { region_.mutex.unlock(); }

  RegionLock(const RegionLock&) = delete;
  RegionLock& operator=(const RegionLock&) = delete;

 private:
  Region& region_;
};

}  // namespace spillway
