// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/heap/address_space.h"
#include "allocator/heap/books.h"
#include "allocator/heap/heap.h"
#include "allocator/heap/regions.h"
#include "allocator/heap/timelines.h"

#include <atomic>
#include <map>
#include <span>
#include <vector>

namespace spillway {

/// The inside of a Heap. `mutex` is for what is rare, growth above all; a block that is there is
/// handed out and given back with its region's lock only. Locks are taken in this order: mutex, one
/// region's, those of the books and timelines.
struct Heap::State {
  using ByRegion = std::map<Region*, std::vector<Block*>>;

  State(const driver::Device& on, const HeapOptions& with);

  /// A block that is in the cache; null where there is none, or it must be waited for.
  driver::DevicePtr hit(const RegionKey& key, Bytes size, Bytes requested, TagId tag);
  /// With all that can be done when it is not.
  Result<driver::DevicePtr> miss(const RegionKey& key, Bytes size, Bytes requested, TagId tag);
  Result<driver::DevicePtr> allocate(const RegionKey& key,
                                     Bytes size,
                                     Bytes requested,
                                     TagId tag,
                                     bool may_grow) SPILLWAY_REQUIRES(mutex);
  Bytes trim() const SPILLWAY_REQUIRES(mutex);
  /// Requires: the heap's lock.
  static Bytes trim(Region& region);
  Result<Region*> region_for(const RegionKey& key) SPILLWAY_REQUIRES(mutex);
  /// Live blocks by region. Errors: kInvalidArgument where one is none.
  Result<ByRegion> live_blocks(std::span<const driver::DevicePtr> blocks) const;
  /// Requires: the heap's lock.
  static Status restore(ByRegion blocks);

  bool refuse_free() {
    ++bad_frees;
    return false;
  }

  const driver::Device device;
  const HeapOptions options;
  std::atomic<std::uint64_t> bad_frees{0};
  mutable Mutex mutex;
  Books books;
  Timelines timelines;
  AddressSpace addresses;  // as it opens, and then with `mutex`
  Access access SPILLWAY_GUARDED_BY(mutex);
  Regions regions;  // added to with `mutex`
};

}  // namespace spillway
