// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/heap.h"
#include "allocator/heap/heap_state.h"

namespace spillway {

std::array<HeapStats, 2> HeapView::stats_by_tier() const {
  ++state_->walks;
  std::array<HeapStats, 2> tiers;
  const Lock lock(state_->mutex);
  state_->write_accounting();
  for (const auto& region : state_->regions.all()) {
    HeapStats& stats = tiers.at(region->key().tier == Tier::kSmall ? 0 : 1);
    const RegionView region_lock(*region);
    region->read(stats);
    for (const auto& [at, chunk] : region->backing().chunks()) {
      ++stats.driver_allocations;
      stats.reserved += chunk.size;
    }
    for (const Block* block = region->first(); block != nullptr; block = block->after) {
      if (block->state != BlockState::kLive) continue;
      ++stats.allocated_blocks;
      stats.allocated += block->size;
      stats.requested += block->requested;
    }
  }
  return tiers;
}

}  // namespace spillway
