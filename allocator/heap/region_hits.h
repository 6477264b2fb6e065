// SPDX-License-Identifier: Apache-2.0
// The hot path of allocations and frees in a heap region: in a header, so that it is inlined into
// its two callers.
#pragma once

#include "allocator/driver/progress.h"
#include "allocator/heap/region.h"

namespace spillway {

inline Block* Region::fitting(Bytes size, int most_looked) {
  Block* const near = best_of(free_.same_bin(size), size, most_looked);
  return near != nullptr ? near : best_of(free_.larger_bin(size), size, most_looked);
}

inline Block* Region::best_of(Block* list, Bytes size, int most_looked) {
  Block* best = nullptr;
  bool equals = false;
  int left = most_looked;
  for (Block* block = list; block != nullptr && left > 0; block = block->listed_after, --left) {
    if (block->size < size) continue;
    if (best == nullptr || block->size < best->size) {
      best = block;
      equals = false;
    } else {
      equals = equals || block->size == best->size;
    }
    if (best->size == size && best->ties == nullptr) break;
  }
  return equals && best->fenced() ? first_to_pass(list, best) : best;
}

inline Block* Region::take_settled(Block* block, Bytes size, Bytes requested, TagId tag) {
  driver::progress::rely_on(this);
  Block* const front = cut_front(block, size);
  hand_out(front, requested, tag);
  return front;
}

inline void Region::hand_out(Block* block, Bytes requested, TagId tag) {
  block->state = BlockState::kLive;
  block->requested = requested;
  block->tag = tag;
  table_.add(block);
  ++counts_.allocations;
  counts_.allocated_total += block->size;
  counts_.requested_total += requested;
}

inline void Region::give(Block* block) {
  ++counts_.frees;
  table_.remove(block);
  block->requested = Bytes{};
  block->tag = TagId::kUntagged;
  block->shared = false;
  if (block->ties != nullptr) promise_fences(block);
  if (block->evicted) return give_pieces(block);
  block->state = BlockState::kFree;
  block->freed_at = next_mark_;
  if (!join_neighbors(block)) merge_and_list(block);
}

/// Splits the first `size` bytes off a listed free block without fences and returns them unlisted.
/// The rest stays in its list if possible.
inline Block* Region::cut_front(Block* block, Bytes size) {
  if (block->size == size) {
    unlist(block);
    return block;
  }
  Block* const front = records_.make(block->at, size, BlockState::kFree);
  front->before = block->before;
  front->after = block;
  (front->before == nullptr ? first_ : front->before->after) = front;
  block->before = front;
  block->at = front->end();
  resize(block, block->size - size);
  return front;
}

/// merge_and_list for a free block without fences whose free neighbors have none. Returns false,
/// without a change, if one of them has a fence. Listed blocks keep their lists if possible.
inline bool Region::join_neighbors(Block* block) {
  Block* const previous = block->before;
  Block* const next = block->after;
  const bool joins_previous = previous != nullptr && previous->state == BlockState::kFree;
  const bool joins_next = next != nullptr && next->state == BlockState::kFree;
  if (block->ties != nullptr || (joins_previous && previous->ties != nullptr) ||
      (joins_next && next->ties != nullptr)) {
    return false;
  }
  if (joins_previous) {
    Bytes size = previous->size + block->size;
    if (joins_next) {
      unlist(next);
      size += next->size;
      forget(next);
    }
    previous->freed_at = block->freed_at;  // the latest
    forget(block);
    resize(previous, size);
  } else if (joins_next) {
    next->at = block->at;
    next->freed_at = block->freed_at;
    const Bytes size = next->size + block->size;
    forget(block);
    resize(next, size);
  } else {
    list(block);
  }
  return true;
}

/// A listed free block without fences grows or shrinks at one of its ends.
inline void Region::resize(Block* block, Bytes size) {
  cached_ -= block->size;
  cached_ += size;
  free_.resize(block, size);
}

/// Removes an unlisted block that has become part of a neighbor.
inline void Region::forget(Block* block) {
  (block->before == nullptr ? first_ : block->before->after) = block->after;
  if (block->after != nullptr) block->after->before = block->before;
  records_.drop(block);
}

inline void Region::list(Block* block) {
  if (block->state == BlockState::kFree) {
    free_.add(block);
    cached_ += block->size;
    if (block->ties != nullptr) pending_ += block->size;
  } else if (block->state == BlockState::kGap) {
    block->listed_before = nullptr;
    block->listed_after = gaps_;
    if (gaps_ != nullptr) gaps_->listed_before = block;
    gaps_ = block;
  }
}

inline void Region::unlist(Block* block) {
  if (block->state == BlockState::kFree) {
    free_.remove(block);
    cached_ -= block->size;
    if (block->ties != nullptr) pending_ -= block->size;
  } else if (block->state == BlockState::kGap) {
    if (block->listed_after != nullptr) block->listed_after->listed_before = block->listed_before;
    Block*& before = block->listed_before == nullptr ? gaps_ : block->listed_before->listed_after;
    before = block->listed_after;
  }
}

}  // namespace spillway
