// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"
#include "allocator/driver/handles.h"
#include "allocator/driver/timeline.h"
#include "allocator/heap/address_space.h"
#include "allocator/heap/backing.h"
#include "allocator/heap/block.h"
#include "allocator/heap/range.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace spillway {

/// The blocks of one stream in one range of addresses. All its blocks are for work on that stream,
/// so that a freed block needs no fence for the stream's own work, and a fence that the stream has
/// once waited for holds for all later work.
///
/// Threads: confined; the heap holds its lock.
/// Ownership: owns the memory mapped in its range.
class Region {
 public:
  using Blocks = std::map<driver::DevicePtr, Block>;

  struct Memory {
    Bytes bytes;
    std::uint64_t chunks = 0;
  };

  Region(const driver::Device& device,
         driver::Stream stream,
         Range range,
         const AddressSpace& addresses)
      : device_(device),
        stream_(stream),
        backing_(device, range, addresses.granularity(), addresses.most_chunk()) {}

  [[nodiscard]] driver::Stream stream() const { return stream_; }

  [[nodiscard]] const Backing& backing() const { return backing_; }

  [[nodiscard]] const Blocks& blocks() const { return blocks_; }

  [[nodiscard]] Bytes pending() const { return pending_; }  // free, with a fence not seen to pass

  [[nodiscard]] std::uint64_t fence_waits() const { return fence_waits_; }

  [[nodiscard]] Bytes largest_free() const;

  /// The block that `at` lies in; the end where it lies in none.
  [[nodiscard]] Blocks::iterator around(driver::DevicePtr at);

  /// The smallest free block of at least `size`; among those of its exact size, one whose fences
  /// have passed.
  [[nodiscard]] std::optional<driver::DevicePtr> best_fit(Bytes size);

  /// Maps the fewest bytes that make a free block of `size`, next to free memory where there is
  /// some; says how many. Stream: the region's stream waits for the fences of the free memory that
  /// becomes part of the block. Errors: kOutOfDeviceMemory where the driver has no memory, `room`
  /// is too small or the addresses are used up; kDriver. Nothing is mapped then.
  Result<Memory> grow(Bytes size, Bytes room);

  /// Hands out the first `size` bytes of the free block at `at`.
  /// Stream: the region's stream waits for the block's fences. Errors: kDriver; the block is then
  /// as it was.
  Result<Block*> take(driver::DevicePtr at, Bytes size);

  /// The live block has no owner any more: it becomes free, and one with its free neighbours.
  void give(Blocks::iterator block);

  /// Gives chunks that are wholly free back to the driver. `own`: the timeline of the region's
  /// stream. Stream: blocks the host until the device is done with them. What cannot be waited for
  /// is kept.
  Memory trim(driver::Timeline& own);

  /// The first thing in the books that is wrong, empty where nothing is. For tests.
  [[nodiscard]] std::string check() const;

 private:
  /// Where to map, and the free blocks beside it that become one with it.
  struct Growth {
    Range where;
    Blocks::iterator left;   // end where none
    Blocks::iterator right;  // end where none
  };

  [[nodiscard]] std::optional<Growth> cheapest_growth(Bytes size);
  [[nodiscard]] bool wholly_free(Blocks::iterator block, Range where) const;
  bool seen_to_pass(Blocks::iterator block);
  Status settle(Blocks::iterator block);
  void merge(Blocks::iterator block);
  void cut(Range where);
  void list(Blocks::iterator block);
  void unlist(Blocks::iterator block);

  const driver::Device device_;
  const driver::Stream stream_;
  Backing backing_;
  Blocks blocks_;
  std::set<std::pair<Bytes, driver::DevicePtr>> free_;
  Bytes pending_;
  std::uint64_t fence_waits_ = 0;
};

}  // namespace spillway
