// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/base/mutex.h"
#include "allocator/base/result.h"
#include "allocator/driver/handles.h"
#include "allocator/driver/timelines.h"
#include "allocator/heap/account.h"
#include "allocator/heap/accounting.h"
#include "allocator/heap/address_space.h"
#include "allocator/heap/backing.h"
#include "allocator/heap/block.h"
#include "allocator/heap/block_table.h"
#include "allocator/heap/free_bins.h"
#include "allocator/heap/range.h"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace spillway {

/// Small and large blocks do not mix, so that a small one that stays does not split large free
/// memory.
enum class Tier : std::uint8_t {
  kSmall,
  kLarge,
  kPlanned,  // of both sizes, at the places of a plan: PlannedRegion
  kPersistent,     // large, from the tails of steps (Heap::begin_optimizer_phase)
};

/// What the blocks of a region have in common.
struct RegionKey {
  CUstream stream;
  PoolId pool;
  Tier tier;

  friend bool operator==(const RegionKey&, const RegionKey&) = default;
};

/// What regions of one heap share.
struct RegionParts {
  driver::Device device;
  const AddressSpace& addresses;
  const Access& access;
  Accounting& accounting;
  driver::Timelines& timelines;
};

/// The blocks of one stream in one range of addresses. All its blocks are for work on that stream,
/// so that a freed block needs no fence for the stream's own work, and a fence that the stream has
/// once waited for holds for all later work.
///
/// Threads: every call with `mutex` held; what maps or unmaps, with the heap's lock held outside
/// it. Ownership: owns the memory mapped in its range.
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

  /// Its stream's, in the heap's accounting.
  [[nodiscard]] Account& account() const { return account_; }

  [[nodiscard]] const Backing& backing() const SPILLWAY_REQUIRES(mutex) { return backing_; }

  /// The first of all blocks in address order; follow Block::after.
  [[nodiscard]] virtual const Block* first() const SPILLWAY_REQUIRES(mutex) { return first_; }

  /// Brings all that can be read of the region, and the heap's accounting of it, up to now:
  /// RegionView.
  virtual void show() SPILLWAY_REQUIRES(mutex) {}

  /// As show; what its blocks are may be changed from now on: RegionLock.
  virtual void open() SPILLWAY_REQUIRES(mutex) {}

  /// Adds to what a heap's statistics say: free memory, waits, calls.
  virtual void read(HeapStats& stats) const SPILLWAY_REQUIRES(mutex);

  [[nodiscard]] Bytes largest_free() const SPILLWAY_REQUIRES(mutex) { return free_.largest(); }

  [[nodiscard]] Block* starting(driver::DevicePtr at) const SPILLWAY_REQUIRES(mutex) {
    return table_.starting(at);
  }

  [[nodiscard]] Block* around(driver::DevicePtr at) const SPILLWAY_REQUIRES(mutex) {
    return table_.around(at);
  }

  /// A free block of at least `size`, null where none is found: of its exact size where there is
  /// one, else the smallest of the first few; among equals one whose fences have passed.
  Block* fitting(Bytes size) SPILLWAY_REQUIRES(mutex) { return fitting(size, kMaxLooked); }

  /// As fitting, and finds one where there is any.
  Block* any_fitting(Bytes size) SPILLWAY_REQUIRES(mutex);
  /// The smallest of those without fences; null where there is none.
  Block* any_settled(Bytes size) SPILLWAY_REQUIRES(mutex);

  /// From now on a free block with fences does not become one with its neighbours, so that what
  /// lies beside it can be had without a wait.
  void keep_fenced_apart() SPILLWAY_REQUIRES(mutex) { apart_ = true; }

  /// Whether some may lie so.
  [[nodiscard]] bool has_pieces_apart() const SPILLWAY_REQUIRES(mutex) { return apart_; }

  /// Makes one of what lies side by side and whose fences have passed; with `all`, of whatever is
  /// free. Stream: no wait.
  void join_free(bool all) SPILLWAY_REQUIRES(mutex);

  /// Maps the fewest bytes that make a free block of `size`, next to free memory where there is
  /// some. Requires: any_fitting has found none. Stream: the region's stream waits for the fences
  /// of the free memory that becomes part of the block. Errors: kOutOfDeviceMemory where the driver
  /// or the limit has no room, or the addresses are used up; kDriver. Nothing is mapped then.
  Status grow(Bytes size) SPILLWAY_REQUIRES(mutex);

  /// Forgets the fences of a free block that have passed; true where none is left. Stream: no wait.
  bool seen_to_pass(Block* block) SPILLWAY_REQUIRES(mutex) {
    return block->ties == nullptr || forget_passed(block);
  }

  /// Hands out the first `size` bytes of a free block. Stream: the region's stream waits for the
  /// block's fences. Errors: kDriver, kNotReady (Timeline::wait); the block is then as it was.
  Result<Block*> take(Block* block, Bytes size, Bytes requested, TagId tag)
      SPILLWAY_REQUIRES(mutex);

  /// As take. Requires: the block has no fences (seen_to_pass).
  Block* take_settled(Block* block, Bytes size, Bytes requested, TagId tag)
      SPILLWAY_REQUIRES(mutex);

  /// Hands out a block in memory mapped for it, whatever is free. Errors: as Backing::map.
  Result<Block*> fresh(Bytes size, Bytes requested, TagId tag) SPILLWAY_REQUIRES(mutex);

  /// The live block has no owner any more: it becomes free, and one with its free neighbours. What
  /// has no memory becomes room for growth.
  void give(Block* block) SPILLWAY_REQUIRES(mutex);

  /// Gives chunks that are wholly free back to the driver. Stream: blocks the host until the device
  /// is done with them. What cannot be waited for is kept. Gives the bytes that went back.
  virtual Bytes trim() SPILLWAY_REQUIRES(mutex);

  /// Heap::evict for blocks of this region, which are live. Gives the bytes that went back.
  virtual Bytes evict(const std::vector<Block*>& blocks) SPILLWAY_REQUIRES(mutex);

  /// Maps memory wherever evicted blocks have none and gives the ranges; leaves the others out of
  /// `blocks`. Errors: as Backing::map; nothing has changed then.
  virtual Result<std::vector<Range>> back(std::vector<Block*>& blocks) SPILLWAY_REQUIRES(mutex);
  /// Undoes back().
  virtual void unback(const std::vector<Block*>& blocks, const std::vector<Range>& ranges)
      SPILLWAY_REQUIRES(mutex);
  /// The blocks that back() was for are evicted no more.
  virtual void revive(const std::vector<Block*>& blocks) SPILLWAY_REQUIRES(mutex);

  /// Heap::share for a live block that is not evicted.
  Result<SharedMemory> share(Block* block) SPILLWAY_REQUIRES(mutex);

  /// The first thing in the accounting that is wrong, empty where nothing is. For tests.
  [[nodiscard]] virtual std::string check() const SPILLWAY_REQUIRES(mutex);

  /// Lets the devices in `access` touch what is mapped. Errors: kDriver.
  Status allow(const Access& access) const SPILLWAY_REQUIRES(mutex) {
    return backing_.allow(access);
  }

  bool released SPILLWAY_GUARDED_BY(mutex) = false;  // its pool

 protected:
  /// Backing::map; what gets stuck is set aside.
  Status map(Range where, Bytes most_of_a_chunk = {}) SPILLWAY_REQUIRES(mutex);
  /// Waits until the device is done with what this region's stream has been given.
  Status wait_for_stream_sync() SPILLWAY_REQUIRES(mutex);
  void hand_out(Block* block, Bytes requested, TagId tag) SPILLWAY_REQUIRES(mutex);
  static void promise_fences(Block* block);
  Status settle(Block* block) SPILLWAY_REQUIRES(mutex);
  /// Blocks the host until the fences of a free block have passed.
  Status settle_sync(Block* block) SPILLWAY_REQUIRES(mutex);

  Account& account_;
  BlockTable table_ SPILLWAY_GUARDED_BY(mutex);
  Backing backing_ SPILLWAY_GUARDED_BY(mutex);
  Bytes pending_ SPILLWAY_GUARDED_BY(mutex);       // free, with a fence not seen to pass
  Bytes evicted_ SPILLWAY_GUARDED_BY(mutex);       // live
  bool apart_ SPILLWAY_GUARDED_BY(mutex) = false;  // keep_fenced_apart()
  HeapStats counts_ SPILLWAY_GUARDED_BY(mutex);    // calls, totals and waits

 private:
  /// Free blocks of one bin that are looked at for one allocation.
  static constexpr int kMaxLooked = 16;
  /// Blocks of one size that are compared where a copy still reads the first one.
  static constexpr int kMaxCompared = 64;

  /// Where to map, and the free blocks beside it that become one with it.
  struct Growth {
    Block* gap;
    Range where;
    Block* left;   // null where none
    Block* right;  // null where none
  };

  Block* fitting(Bytes size, int most_looked) SPILLWAY_REQUIRES(mutex);
  Block* best_of(Block* list, Bytes size, int most_looked) SPILLWAY_REQUIRES(mutex);
  Block* first_to_pass(Block* list, Block* otherwise) SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] std::optional<Growth> cheapest_growth(Bytes size) const SPILLWAY_REQUIRES(mutex);
  bool forget_passed(Block* block) SPILLWAY_REQUIRES(mutex);

  // The list of blocks: free ones and gaps are listed, and one with their like.
  Block* cut_front(Block* block, Bytes size) SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] bool are_one(const Block& block, const Block* other) const SPILLWAY_REQUIRES(mutex);
  void forget_all_passed() SPILLWAY_REQUIRES(mutex);
  [[nodiscard]] std::set<driver::DevicePtr> chunks_in_use() const SPILLWAY_REQUIRES(mutex);
  bool join_neighbours(Block* block) SPILLWAY_REQUIRES(mutex);
  void resize(Block* block, Bytes size) SPILLWAY_REQUIRES(mutex);
  void forget(Block* block) SPILLWAY_REQUIRES(mutex);
  Block* split(Block* block, Bytes size) SPILLWAY_REQUIRES(mutex);
  Block* carve(Block* block, Range where) SPILLWAY_REQUIRES(mutex);
  void absorb_after(Block* block) SPILLWAY_REQUIRES(mutex);
  Block* merge(Block* block) SPILLWAY_REQUIRES(mutex);
  void merge_and_list(Block* block) SPILLWAY_REQUIRES(mutex);
  void list(Block* block) SPILLWAY_REQUIRES(mutex);
  void unlist(Block* block) SPILLWAY_REQUIRES(mutex);
  void turn(Block* block, Range where, BlockState state) SPILLWAY_REQUIRES(mutex);

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
};

/// Holds a region's lock for a scope that reads what the region knows.
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

/// Holds a region's lock for a scope that changes it.
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
