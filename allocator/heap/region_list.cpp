// SPDX-License-Identifier: Apache-2.0
// A region's blocks as a list in address order: splitting, merging, and which of them are listed.
#include "allocator/heap/region_hits.h"

namespace spillway {

/// Cuts a block that is not listed to its first `size` bytes; gives the rest, which is of the same
/// state, tied to the same fences and not listed either.
Block* Region::split(Block* block, Bytes size) {
  Block* const rest = records_.make(block->at + size, block->size - size, block->state);
  if (block->ties != nullptr) {
    rest->ties = std::make_unique<Ties>();
    rest->ties->fences.add(block->ties->fences);
  }
  block->size = size;
  rest->before = block;
  rest->after = block->after;
  if (rest->after != nullptr) rest->after->before = rest;
  block->after = rest;
  return rest;
}

/// The part `where` of a block that is not listed, as a block that is not; the parts beside it are.
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
  if (next->ties != nullptr) {
    if (block->ties == nullptr) block->ties = std::make_unique<Ties>();
    block->ties->fences.add(next->ties->fences);
  }
  block->after = next->after;
  if (block->after != nullptr) block->after->before = block;
  records_.drop(next);
}

/// Makes a block that is not listed one with its neighbours of the same state, which are.
Block* Region::merge(Block* block) {
  Block* const next = block->after;
  if (next != nullptr && next->state == block->state) {
    unlist(next);
    absorb_after(block);
  }
  Block* const previous = block->before;
  if (previous != nullptr && previous->state == block->state) {
    unlist(previous);
    absorb_after(previous);
    block = previous;
  }
  return block;
}

void Region::merge_and_list(Block* block) {
  list(merge(block));
}

/// The part `where` of a listed block changes its state.
void Region::turn(Block* block, Range where, BlockState state) {
  unlist(block);
  Block* const part = carve(block, where);
  part->state = state;
  merge_and_list(part);
}

}  // namespace spillway
