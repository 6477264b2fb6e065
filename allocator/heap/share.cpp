// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/heap.h"
#include "allocator/heap/heap_state.h"

namespace spillway {

Result<SharedMemory> Heap::share(driver::DevicePtr at) {
  const Lock lock(state_->mutex);
  Region* const region = state_->regions.around(at);
  if (region == nullptr) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "the address is not in memory of Spillway's heap");
  }
  const RegionLock region_lock(*region);
  Block* const block = region->around(at);
  if (block == nullptr) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "the address is not in an allocated block: its block was freed");
  }
  if (region->key().tier == Tier::kSmall) {
    return SPILLWAY_ERROR(
        Code::kInvalidArgument,
        "blocks of at most 128 KiB cannot be shared with other processes: their pages hold other "
        "blocks too");
  }
  if (block->evicted || block->pinned) {
    return SPILLWAY_ERROR(Code::kNotReady, "the memory is paused. Resume it first.");
  }
  return region->share(block);
}

}  // namespace spillway
