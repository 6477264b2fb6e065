// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/heap.h"
#include "allocator/heap/heap_state.h"

#include <algorithm>
#include <map>
#include <vector>

namespace spillway {
namespace {

/// Largest first, then by id, so that the text is deterministic.
std::vector<std::pair<TagId, Bytes>> by_size(const std::map<TagId, Bytes>& tags) {
  std::vector<std::pair<TagId, Bytes>> sorted(tags.begin(), tags.end());
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& left, const auto& right) {
    return left.second > right.second;
  });
  return sorted;
}

/// Calls `visit(block, region)` for every allocated block, under its heap region's lock.
template <typename Visit>
void each_allocated(const Regions& regions, Visit visit) {
  for (const auto& region : regions.all()) {
    const RegionView lock(*region);
    for (const Block* block = region->first(); block != nullptr; block = block->after) {
      if (block->state == BlockState::kLive) visit(*block, *region);
    }
  }
}

}  // namespace

HeapBlockInfo info_of(const Block& block, const RegionKey& key) {
  const bool allocated = block.state == BlockState::kLive;
  return {block.at,
          block.size,
          block.requested,
          allocated,
          block.fenced(),
          block.evicted,
          block.tag,
          key.pool,
          key.stream,
          block.shared,
          key.tier == Tier::kPersistent || key.tier == Tier::kSmall};
}

Bytes HeapView::allocated() const {
  HeapStats stats;
  state_->replay.write_accounting();
  state_->accounting.read(stats);
  return stats.allocated;
}

Bytes HeapView::reserved() const {
  HeapStats stats;
  state_->accounting.read(stats);
  return stats.reserved;
}

std::uint64_t HeapView::mapping_changes() const {
  return state_->accounting.driver_calls();
}

std::uint64_t HeapView::walks() const {
  return state_->walks.load(std::memory_order_relaxed);
}

HeapStats HeapState::stats() {
  ++walks;
  const Lock lock(mutex);
  HeapStats stats;
  replay.write_accounting();
  accounting.read(stats);
  for (const auto& region : regions.all()) {
    const RegionView region_lock(*region);
    region->read(stats);
  }
  stats.bad_frees = bad_frees.load();
  stats.over_budget = over_budget.load();
  stats.rounding = saturating_sub(stats.allocated, stats.requested);
  return stats;
}

HeapStats Heap::stats() const {
  return state_->stats();
}

std::vector<HeapTagInfo> HeapView::tags() const {
  ++state_->walks;
  const Lock lock(state_->mutex);
  state_->replay.write_accounting();
  std::vector<HeapTagInfo> tags = state_->accounting.tags();
  each_allocated(state_->regions, [&](const Block& block, const Region&) {
    const auto known = std::find_if(
        tags.begin(), tags.end(), [&](const HeapTagInfo& tag) { return tag.tag == block.tag; });
    if (known == tags.end()) return;  // allocated since
    known->requested += block.requested;
    if (block.evicted) known->evicted += block.size;
  });
  return tags;
}

HeapBlockInfo Heap::find(driver::DevicePtr at) const {
  Region* const region = state_->regions.around(at);
  if (region == nullptr) return {};
  const RegionView lock(*region);
  const Block* const block = region->allocated().around(at);
  return block == nullptr ? HeapBlockInfo{} : info_of(*block, region->key());
}

std::vector<HeapBlockInfo> HeapView::blocks_of(TagId tag) const {
  const Lock lock(state_->mutex);
  std::vector<HeapBlockInfo> blocks;
  each_allocated(state_->regions, [&](const Block& block, const Region& region) {
    if (block.tag == tag) blocks.push_back(info_of(block, region.key()));
  });
  return blocks;
}

std::string HeapView::describe() const {
  const HeapStats now = state_->stats();
  std::map<TagId, Bytes> tags;
  Bytes largest;
  const Bytes cap = HeapLimits(*state_).limit();
  {
    const Lock lock(state_->mutex);
    for (const auto& region : state_->regions.all()) {
      if (region->key().tier == Tier::kReplay) continue;
      const RegionView region_lock(*region);
      for (const Block* block = region->first(); block != nullptr; block = block->after)
        if (block->state == BlockState::kFree) largest = std::max(largest, block->size);
    }
    each_allocated(state_->regions,
                   [&](const Block& block, const Region&) { tags[block.tag] += block.size; });
  }
  const auto memory = driver::memory_info(state_->device);

  std::string text = "device " + std::to_string(static_cast<int>(state_->device.id)) +
                     ": reserved " + readable(now.reserved);
  if (!cap.zero()) text += " (limit " + readable(cap) + ")";
  text += ", allocated " + readable(now.allocated) + " in " + std::to_string(now.allocated_blocks) +
          " blocks";
  text += ", cached " + readable(now.cached) + " (largest block " + readable(largest) +
          ", pending " + readable(now.pending) + ")";
  if (!now.evicted.zero()) text += ", evicted " + readable(now.evicted);
  if (memory.ok()) {
    text += ", the driver has " + readable(memory.value().free) + " of " +
            readable(memory.value().total);
  }
  text += "; allocated by tag:";
  for (const auto& [tag, bytes] : by_size(tags)) {
    std::string name =
        state_->options.name_of == nullptr ? std::string() : state_->options.name_of(tag);
    if (tag == TagId::kUntagged) name = "untagged";
    if (name.empty()) name = "tag " + std::to_string(static_cast<std::uint32_t>(tag));
    text += " " + name + " " + readable(bytes) + ",";
  }
  if (tags.empty()) text += " nothing,";
  text.pop_back();
  return text;
}

std::vector<HeapSegmentInfo> HeapView::segments() const {
  ++state_->walks;
  const Lock lock(state_->mutex);
  std::vector<HeapSegmentInfo> segments;
  for (const auto& region : state_->regions.all()) {
    const RegionView region_lock(*region);
    driver::DevicePtr end;
    for (const Block* block = region->first(); block != nullptr; block = block->after) {
      if (block->state != BlockState::kFree && block->state != BlockState::kLive) continue;
      if (block->at != end || end == driver::DevicePtr{}) {
        segments.push_back({block->at, Bytes{}, region->key().stream, region->key().pool, {}});
      }
      segments.back().blocks.push_back(info_of(*block, region->key()));
      segments.back().size += block->size;
      end = block->end();
    }
  }
  return segments;
}

std::array<HeapStats, 2> HeapView::stats_by_tier() const {
  ++state_->walks;
  std::array<HeapStats, 2> tiers;
  const Lock lock(state_->mutex);
  state_->replay.write_accounting();
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
