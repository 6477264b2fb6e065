// SPDX-License-Identifier: Apache-2.0
// Allocated blocks without memory: their addresses stay.
#include "allocator/heap/heap.h"
#include "allocator/heap/heap_state.h"

#include <algorithm>

namespace spillway {

Result<HeapState::ByRegion> HeapState::allocated_blocks(
    std::span<const driver::DevicePtr> blocks) const {
  ByRegion found;
  for (const driver::DevicePtr at : blocks) {
    Region* const region = regions.around(at);
    Block* block = nullptr;
    if (region != nullptr) {
      const RegionLock lock(*region);
      block = region->allocated().starting(at);
    }
    if (block == nullptr) {
      return SPILLWAY_ERROR(
          Code::kInvalidArgument,
          std::to_string(at.address()) + " is not the start of an allocated block of this heap");
    }
    found[region].push_back(block);
  }
  return found;
}

Result<Bytes> Heap::evict(std::span<const driver::DevicePtr> blocks) {
  const Lock lock(state_->mutex);
  SPILLWAY_ASSIGN_OR_RETURN(const HeapState::ByRegion found, state_->allocated_blocks(blocks));
  for (const auto& [region, of_region] : found) {
    const RegionView region_lock(*region);
    const bool shared = std::any_of(
        of_region.begin(), of_region.end(), [](const Block* block) { return block->shared; });
    if (shared) {
      return SPILLWAY_ERROR(
          Code::kNotReady,
          "a block is shared with other processes. Evict it after they have released it.");
    }
  }
  Bytes back;
  for (const auto& [region, of_region] : found) {
    const RegionLock region_lock(*region);
    back += region->evict(of_region);
  }
  return back;
}

Status Heap::restore(std::span<const driver::DevicePtr> blocks) {
  const Lock lock(state_->mutex);
  SPILLWAY_ASSIGN_OR_RETURN(const HeapState::ByRegion found, state_->allocated_blocks(blocks));
  Status status = state_->restore(found);
  if (status.code() == Code::kOutOfDeviceMemory) {
    state_->trim_for_room();
    // Paused memory is restored at the program's request, beyond the budget by its own bytes.
    const Bytes budget = state_->accounting.budget();
    state_->accounting.set_budget({});
    status = state_->restore(found);
    state_->accounting.set_budget(budget);
    if (status.ok()) state_->accounting.exceed_budget({});
  }
  return status;
}

/// All heap regions or none.
Status HeapState::restore(ByRegion blocks) {
  std::map<Region*, std::vector<Range>> mapped;
  for (auto& [region, of_region] : blocks) {
    Result<std::vector<Range>> ranges = std::vector<Range>{};
    {
      const RegionLock lock(*region);
      ranges = region->back(of_region);
    }
    if (ranges.ok()) {
      mapped.emplace(region, std::move(ranges).value());
      continue;
    }
    for (const auto& [done, where] : mapped) {
      const RegionLock lock(*done);
      done->unback(blocks.at(done), where);
    }
    return ranges.status();
  }
  for (const auto& [region, of_region] : blocks) {
    const RegionLock lock(*region);
    region->revive(of_region);
  }
  return {};
}

}  // namespace spillway
