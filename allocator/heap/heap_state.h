// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/heap/address_space.h"
#include "allocator/heap/heap.h"
#include "allocator/heap/region.h"

#include <map>
#include <memory>
#include <utility>

namespace spillway {

/// The inside of a Heap: its regions, by owner and by address, and its books.
struct Heap::State {
  /// Small and large blocks do not mix, so that a small one that stays does not split large free
  /// memory.
  enum class Pool { kSmall, kLarge };

  struct Place {
    Region* region = nullptr;
    Region::Blocks::iterator block;
  };

  State(const driver::Device& on, const HeapOptions& with)
      : device(on), options(with), limit(with.limit), addresses(on) {}

  Result<driver::DevicePtr> allocate(Bytes size, driver::Stream stream, TagId tag)
      SPILLWAY_REQUIRES(mutex);
  Result<Block*> find_block(Region& region, Bytes size, driver::DevicePtr& at)
      SPILLWAY_REQUIRES(mutex);
  Status grow(Region& region, Bytes size) SPILLWAY_REQUIRES(mutex);
  void free(const Place& place) SPILLWAY_REQUIRES(mutex);
  Bytes trim() SPILLWAY_REQUIRES(mutex);

  Result<Region*> region_for(driver::Stream stream, Bytes size) SPILLWAY_REQUIRES(mutex);
  driver::Timeline& timeline(driver::Stream stream) SPILLWAY_REQUIRES(mutex);
  /// The live block around `at`; no region where there is none.
  Place live_at(driver::DevicePtr at) SPILLWAY_REQUIRES(mutex);
  Bytes room() const SPILLWAY_REQUIRES(mutex);
  Bytes away() const;

  const driver::Device device;
  const HeapOptions options;
  mutable Mutex mutex;
  Bytes limit SPILLWAY_GUARDED_BY(mutex);
  AddressSpace addresses SPILLWAY_GUARDED_BY(mutex);
  std::map<CUstream, std::unique_ptr<driver::Timeline>> timelines SPILLWAY_GUARDED_BY(mutex);
  std::map<driver::DevicePtr, std::unique_ptr<Region>> regions SPILLWAY_GUARDED_BY(mutex);
  std::map<std::pair<CUstream, Pool>, Region*> by_stream SPILLWAY_GUARDED_BY(mutex);
  HeapStats stats SPILLWAY_GUARDED_BY(mutex);  // less what regions count themselves
};

}  // namespace spillway
