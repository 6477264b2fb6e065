// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/heap.h"
#include "allocator/heap/heap_state.h"

#include <algorithm>
#include <map>
#include <set>

namespace spillway {

std::vector<HeapBlockInfo> Heap::pin_blocks(std::span<const TagId> tags, bool evicted) {
  const std::set<TagId> wanted(tags.begin(), tags.end());
  std::vector<HeapBlockInfo> pinned;
  const Lock lock(state_->mutex);
  for (const auto& region : state_->regions.all()) {
    const RegionLock region_lock(*region);
    for (const Block* each = region->first(); each != nullptr; each = each->after) {
      if (each->state != BlockState::kLive || each->evicted != evicted) continue;
      if (each->pinned || !wanted.contains(each->tag)) continue;
      region->allocated().starting(each->at)->pinned = true;
      pinned.push_back(info_of(*each, region->key()));
    }
  }
  return pinned;
}

Result<driver::FenceSet> Heap::last_uses(std::span<const driver::DevicePtr> blocks) {
  driver::FenceSet uses;
  std::set<driver::Timeline*> streams;
  for (const driver::DevicePtr at : blocks) {
    Region* const region = state_->regions.around(at);
    SPILLWAY_CHECK(region != nullptr);
    const RegionView lock(*region);
    const Block* const block = region->allocated().starting(at);
    SPILLWAY_CHECK(block != nullptr);
    streams.insert(&state_->timelines.of(region->stream()));
    if (block->ties == nullptr) continue;
    uses.add(block->ties->fences);
    streams.insert(block->ties->users.begin(), block->ties->users.end());
  }
  for (driver::Timeline* const stream : streams) {
    SPILLWAY_ASSIGN_OR_RETURN(const driver::Fence so_far, stream->mark());
    uses.add(so_far);
  }
  return uses;
}

std::vector<driver::DevicePtr> Heap::unpin_blocks(std::span<const driver::DevicePtr> blocks) {
  std::vector<driver::DevicePtr> freed;
  for (const driver::DevicePtr at : blocks) {
    Region* const region = state_->regions.around(at);
    SPILLWAY_CHECK(region != nullptr);
    const RegionLock lock(*region);
    Block* const block = region->allocated().starting(at);
    SPILLWAY_CHECK(block != nullptr && block->pinned);
    block->pinned = false;
    if (block->freed) freed.push_back(at);
    block->freed = false;
  }
  for (const driver::DevicePtr at : freed)
    free(at);
  return freed;
}

// NOLINTNEXTLINE(readability-function-cognitive-complexity): one pass over the blocks
Bytes Heap::reclaimable(std::span<const TagId> tags) const {
  const std::set<TagId> wanted(tags.begin(), tags.end());
  Bytes bytes;
  const Lock lock(state_->mutex);
  for (const auto& region : state_->regions.all()) {
    const RegionView region_lock(*region);
    if (region->key().tier == Tier::kReplay) continue;  // keeps its chunks
    const auto& chunks = region->backing().chunks();
    // chunks with a wanted block: whether they have no other allocated one
    std::map<driver::DevicePtr, bool> goes;
    for (const Block* each = region->first(); each != nullptr; each = each->after) {
      const bool allocated = each->state == BlockState::kLive && !each->evicted;
      const bool written = each->state == BlockState::kFree &&
                           written_while_free(region->key().pool) && !region->released;
      if (!allocated && !written) continue;
      const bool leaves = allocated && wanted.contains(each->tag);
      if (leaves && each->shared) return {};
      for (driver::DevicePtr at = each->at; at < each->end();
           at = region->backing().border(at, each->end())) {
        const auto chunk = region->backing().around(at);
        if (chunk == chunks.end()) continue;
        const auto known = goes.try_emplace(chunk->first, leaves).first;
        known->second = known->second && leaves;
      }
    }
    for (const auto& [at, whole] : goes) {
      if (whole) bytes += chunks.at(at).size;
    }
  }
  return bytes;
}

}  // namespace spillway
