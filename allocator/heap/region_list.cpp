// SPDX-License-Identifier: Apache-2.0
// A heap region's blocks as a list in address order: splitting, merging, and the lists by kind.
#include "allocator/heap/region_hits.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace spillway {

/// Shrinks an unlisted block to its first `size` bytes. Returns the rest, unlisted, with the same
/// state and fences.
Block* Region::split(Block* block, Bytes size) {
  Block* const rest = records_.make(block->at + size, block->size - size, block->state);
  if (block->ties != nullptr) {
    rest->ties = std::make_unique<PendingUses>();
    rest->ties->fences.add(block->ties->fences);
  }
  rest->freed_at = block->freed_at;
  block->size = size;
  rest->before = block;
  rest->after = block->after;
  if (rest->after != nullptr) rest->after->before = rest;
  block->after = rest;
  return rest;
}

/// Returns the part `where` of an unlisted block as an unlisted block; lists the remaining parts.
Block* Region::carve(Block* block, Range where) {
  SPILLWAY_CHECK(block->range().contains(where));
  if (block->at < where.begin) {
    Block* const part = split(block, distance(block->at, where.begin));
    list(block);
    block = part;
  }
  if (where.end() < block->end()) list(split(block, where.size));
  return block;
}

void Region::absorb_after(Block* block) {
  Block* const next = block->after;
  block->size += next->size;
  block->freed_at = std::max(block->freed_at, next->freed_at);
  if (next->ties != nullptr) {
    if (block->ties == nullptr) block->ties = std::make_unique<PendingUses>();
    block->ties->fences.add(next->ties->fences);
  }
  block->after = next->after;
  if (block->after != nullptr) block->after->before = block;
  records_.drop(next);
}

/// Whether the neighbors can be merged.
bool Region::are_one(const Block& block, const Block* other) const {
  if (other == nullptr || other->state != block.state) return false;
  return !scattered_ || (block.ties == nullptr && other->ties == nullptr);
}

/// Merges an unlisted block with its listed neighbors of the same state.
Block* Region::merge(Block* block) {
  Block* const next = block->after;
  if (are_one(*block, next)) {
    unlist(next);
    absorb_after(block);
  }
  Block* const previous = block->before;
  if (are_one(*block, previous)) {
    unlist(previous);
    absorb_after(previous);
    block = previous;
  }
  return block;
}

void Region::merge_and_list(Block* block) {
  list(merge(block));
}

/// Drops the fences of free blocks that have passed. Queries each timeline's fences in order, up to
/// the first that has not passed: later ones have not either.
void Region::forget_all_passed() {
  std::vector<driver::Fence> fences;
  for (const Block* block = first_; block != nullptr; block = block->after) {
    if (block->state == BlockState::kFree && block->ties != nullptr)
      fences.insert(fences.end(), block->ties->fences.begin(), block->ties->fences.end());
  }
  std::sort(fences.begin(), fences.end(), [](driver::Fence left, driver::Fence right) {
    return std::pair(left.timeline, left.point) < std::pair(right.timeline, right.point);
  });
  std::map<const driver::Timeline*, std::uint64_t> not_passed;
  for (const driver::Fence fence : fences) {
    if (!not_passed.contains(fence.timeline) && !driver::Timeline::passed(fence))
      not_passed.emplace(fence.timeline, fence.point);
  }
  for (Block* block = first_; block != nullptr; block = block->after) {
    if (block->state != BlockState::kFree || block->ties == nullptr) continue;
    const driver::FenceSet& of = block->ties->fences;
    const bool pending = std::any_of(of.begin(), of.end(), [&](driver::Fence fence) {
      const auto known = not_passed.find(fence.timeline);
      return known != not_passed.end() && fence.point >= known->second;
    });
    if (!pending) forget_passed(block);
  }
}

void Region::join_free(bool all) {
  forget_all_passed();
  const bool apart = std::exchange(scattered_, scattered_ && !all);
  for (Block* block = first_; block != nullptr; block = block->after) {
    if (block->state != BlockState::kFree || !are_one(*block, block->before)) continue;
    unlist(block);
    block = merge(block);
    list(block);
  }
  scattered_ = apart;
}

/// Changes the state of the part `where` of a listed block.
void Region::change_state(Block* block, Range where, BlockState state) {
  unlist(block);
  Block* const part = carve(block, where);
  part->state = state;
  if (state != BlockState::kFree) part->ties.reset();
  merge_and_list(part);
}

}  // namespace spillway
