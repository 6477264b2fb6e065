// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/heap.h"
#include "allocator/heap/heap_state.h"

#include <map>
#include <set>
#include <vector>

namespace spillway {
namespace {

/// The bytes of a block that have memory.
Bytes mapped_part(const Backing& backing, const Block& block) {
  Bytes mapped;
  for (driver::DevicePtr at = block.at; at < block.end();) {
    const driver::DevicePtr border = backing.border(at, block.end());
    if (backing.around(at) != backing.chunks().end()) mapped += distance(at, border);
    at = border;
  }
  return mapped;
}

std::string wrong_state(const Block& block, Bytes mapped, Bytes granularity) {
  const bool whole =
      Bytes{block.at.address()}.rounded_down(granularity).count() == block.at.address() &&
      block.size.rounded_down(granularity) == block.size;
  switch (block.state) {
    case BlockState::kGap:
      if (!mapped.zero()) return "a gap is mapped";
      return whole ? "" : "a gap is not made of whole granules";
    case BlockState::kFree:
      return mapped == block.size ? "" : "a free block is not mapped";
    case BlockState::kLive:
      return mapped == block.size || block.evicted ? "" : "an allocated block is not mapped";
    case BlockState::kHole:
      return mapped.zero() ? "" : "a hole is mapped";
    case BlockState::kStuck:
      return {};
  }
  return "a block has no state";
}

}  // namespace

// NOLINTNEXTLINE(readability-function-cognitive-complexity): a list of what must hold
std::string Region::check() const {
  const std::vector<Block*> free_list = free_.all();
  const std::set<const Block*> binned(free_list.begin(), free_list.end());
  std::set<const Block*> gaps;
  for (const Block* gap = gaps_; gap != nullptr; gap = gap->listed_after)
    gaps.insert(gap);
  Bytes cached;
  Bytes pending;
  Bytes evicted;
  std::size_t free_blocks = 0;
  std::size_t gap_blocks = 0;
  driver::DevicePtr end = range_.begin;
  for (const Block* block = first_; block != nullptr; block = block->after) {
    const Block* const before = block->before;
    if (block->at != end || block->size.zero()) return "blocks do not lie side by side";
    if (before != nullptr && before->after != block) return "a block is not its neighbor's";
    end = block->end();
    const Bytes mapped = mapped_part(backing_, *block);
    if (std::string wrong = wrong_state(*block, mapped, backing_.granularity()); !wrong.empty()) {
      return wrong;
    }
    const bool free = block->state == BlockState::kFree;
    const bool gap = block->state == BlockState::kGap;
    const bool apart = scattered_ && free;  // they are merged when memory is requested
    if (!apart && (free || gap) && before != nullptr && before->state == block->state) {
      return "two neighbors of one kind are not one";
    }
    if (free && !binned.contains(block)) return "a free block is not listed";
    if (gap && !gaps.contains(block)) return "a gap is not listed";
    if (free && block->ties != nullptr && block->ties->fences.empty()) return "ties without fences";
    if ((table_.starting(block->at) == block) != (block->state == BlockState::kLive)) {
      return "the table differs from the allocated blocks";
    }
    if (free) cached += block->size;
    if (free && block->fenced()) pending += block->size;
    if (block->evicted) evicted += block->size;
    free_blocks += free ? 1 : 0;
    gap_blocks += gap ? 1 : 0;
  }
  if (end != range_.end()) return "blocks do not cover the region";
  if (free_blocks != binned.size()) return "what is listed as free is not";
  if (gap_blocks != gaps.size()) return "what is listed as a gap is not";
  if (cached != cached_) return "free bytes are counted wrong";
  if (pending != pending_) return "pending bytes are counted wrong";
  if (evicted != evicted_) return "evicted bytes are counted wrong";
  return {};
}

std::string HeapView::check() const {
  const HeapStats stats = state_->stats();
  const Lock lock(state_->mutex);
  HeapStats sum;
  sum.reserved = state_->spares.lost() + state_->spares.bytes();
  std::map<TagId, Bytes> tags;
  for (const auto& region : state_->regions.all()) {
    const RegionView region_lock(*region);
    if (std::string wrong = region->check(); !wrong.empty()) return wrong;
    for (const auto& [at, chunk] : region->backing().chunks())
      sum.reserved += chunk.size;
    for (const Range& stuck : region->backing().stuck())
      sum.reserved += stuck.size;
    for (const Block* block = region->first(); block != nullptr; block = block->after) {
      if (block->state != BlockState::kLive) continue;
      ++sum.allocated_blocks;
      sum.allocated += block->size;
      sum.requested += block->requested;
      tags[block->tag] += block->size;
    }
  }
  if (sum.reserved != stats.reserved) return "reserved bytes are counted wrong";
  if (sum.allocated != stats.allocated) return "allocated bytes are counted wrong";
  if (sum.requested != stats.requested) return "requested bytes are counted wrong";
  if (sum.allocated_blocks != stats.allocated_blocks) return "allocated blocks are counted wrong";
  if (stats.allocations - stats.frees != stats.allocated_blocks) return "calls are counted wrong";
  if (stats.stranded > stats.cached || stats.pending > stats.cached)
    return "waste is counted wrong";
  for (const HeapTagInfo& tag : state_->accounting.tags()) {
    if (tag.allocated != tags[tag.tag]) return "a tag's bytes are counted wrong";
  }
  return {};
}

}  // namespace spillway
