// SPDX-License-Identifier: Apache-2.0
// Evicting and restoring the memory of allocated blocks at the same addresses.
#include "allocator/heap/region.h"
#include "allocator/heap/region_hits.h"

#include <algorithm>
#include <map>

namespace spillway {
namespace {

Range common(const Range& left, const Range& right) {
  const driver::DevicePtr begin = std::max(left.begin, right.begin);
  return {begin, distance(begin, std::min(left.end(), right.end()))};
}

/// The first block in address order that overlaps `where`. Requires: `block` does.
Block* first_in(Block* block, Range where) {
  while (block->before != nullptr && block->before->end() > where.begin)
    block = block->before;
  return block;
}

driver::DevicePtr down(driver::DevicePtr at, Bytes granularity) {
  return driver::DevicePtr(Bytes{at.address()}.rounded_down(granularity).count());
}

driver::DevicePtr up(driver::DevicePtr at, Bytes granularity) {
  return driver::DevicePtr(Bytes{at.address()}.rounded_up(granularity).count());
}

}  // namespace

Bytes Region::evict(const std::vector<Block*>& blocks) {
  struct Candidate {
    Range chunk;
    Block* block;
    bool has_free;
  };

  for (Block* const block : blocks) {
    if (!block->evicted) evicted_ += block->size;
    block->evicted = true;
  }
  std::map<driver::DevicePtr, Candidate> going;
  bool wait = false;
  for (Block* const block : blocks) {
    for (driver::DevicePtr at = block->at; at < block->end();
         at = backing_.border(at, block->end())) {
      const auto chunk = backing_.around(at);
      if (chunk == backing_.chunks().end()) continue;
      const Range range{chunk->first, chunk->second.size};
      bool has_free = false;
      if (!can_go(block, range, has_free)) continue;
      going.emplace(range.begin, Candidate{range, block, has_free});
      wait = wait || has_free;
    }
  }
  const bool waited = wait && wait_for_stream_sync().ok();
  Bytes back;
  for (const auto& [at, candidate] : going) {
    if (candidate.has_free && !waited) continue;
    if (!backing_.unmap(candidate.chunk)) continue;
    back += candidate.chunk.size;
    drop_free_parts(candidate.block, candidate.chunk);
  }
  return back;
}

/// Whether a chunk contains only evicted blocks and free memory, without pending fences.
bool Region::can_go(Block* from, Range chunk, bool& has_free) {
  for (Block* block = first_in(from, chunk); block != nullptr && block->at < chunk.end();
       block = block->after) {
    if (block->state == BlockState::kLive && !block->evicted) return false;
    if (block->state != BlockState::kFree) continue;
    if (written_while_free(key_.pool) && !released) return false;
    has_free = true;
    if (!settle_sync(block).ok()) return false;
  }
  return true;
}

/// Converts the free memory of a released chunk to gaps, where it covers whole granules.
void Region::drop_free_parts(Block* from, Range chunk) {
  Block* block = first_in(from, chunk);
  for (bool last = false; !last;) {
    Block* const next = block->after;  // an evicted block unless it is the last
    last = next == nullptr || next->at >= chunk.end();
    if (block->state == BlockState::kFree) {
      unlist(block);
      Block* const part = carve(block, common(block->range(), chunk));
      part->state = BlockState::kHole;
      open_hole(part);
    }
    block = next;
  }
}

/// Converts the whole granules of a hole and its adjacent holes to a gap. Only granules that an
/// evicted block touches remain holes.
void Region::open_hole(Block* hole) {
  hole = merge(hole);
  const Bytes granularity = backing_.granularity();
  const driver::DevicePtr begin = up(hole->at, granularity);
  const driver::DevicePtr end = down(hole->end(), granularity);
  if (end <= begin) return;
  Block* const part = carve(hole, {begin, distance(begin, end)});
  part->state = BlockState::kGap;
  merge_and_list(part);
}

/// Frees an evicted block: parts with memory become free blocks, the others gaps.
void Region::give_pieces(Block* block) {
  block->evicted = false;
  evicted_ -= block->size;
  for (;;) {
    const driver::DevicePtr border = backing_.border(block->at, block->end());
    Block* const rest = border < block->end() ? split(block, distance(block->at, border)) : nullptr;
    const bool mapped = backing_.around(block->at) != backing_.chunks().end();
    if (mapped) {
      block->state = BlockState::kFree;
      merge_and_list(block);
    } else {
      block->ties.reset();
      block->state = backing_.is_stuck(block->at) ? BlockState::kStuck : BlockState::kHole;
      if (block->state == BlockState::kHole) open_hole(block);
    }
    if (rest == nullptr) return;
    block = rest;
  }
}

Result<std::vector<Range>> Region::back(std::vector<Block*>& blocks) {
  std::erase_if(blocks, [](const Block* block) { return !block->evicted; });
  std::sort(blocks.begin(), blocks.end(), [](const Block* left, const Block* right) {
    return left->at < right->at;
  });
  std::vector<Range> ranges = missing(blocks);
  for (auto range = ranges.begin(); range != ranges.end(); ++range) {
    Status status = backing_.map(*range);
    if (status.ok()) continue;
    unback(blocks, {ranges.begin(), range});
    return status;
  }
  return ranges;
}

void Region::unback(const std::vector<Block*>& blocks, const std::vector<Range>& ranges) {
  for (const Range& range : ranges) {
    for (driver::DevicePtr at = range.begin; at < range.end();) {
      const driver::DevicePtr next = backing_.border(at, range.end());
      backing_.unmap({at, distance(at, next)});
      at = next;
    }
  }
  for (Block* const block : blocks)
    settle_holes(block);
}

void Region::revive(const std::vector<Block*>& blocks) {
  for (Block* const block : blocks) {
    if (block->evicted) evicted_ -= block->size;
    block->evicted = false;
    settle_holes(block);
  }
}

/// The granules without memory that the blocks touch, in address order. Requires: they are sorted.
std::vector<Range> Region::missing(const std::vector<Block*>& blocks) const {
  std::vector<Range> ranges;
  driver::DevicePtr done;
  for (const Block* const block : blocks) {
    const driver::DevicePtr end = up(block->end(), backing_.granularity());
    driver::DevicePtr at = std::max(done, down(block->at, backing_.granularity()));
    while (at < end) {
      const driver::DevicePtr border = backing_.border(at, end);
      if (backing_.around(at) == backing_.chunks().end()) {
        if (!ranges.empty() && ranges.back().end() == at) {
          ranges.back().size += distance(at, border);
        } else {
          ranges.push_back({at, distance(at, border)});
        }
      }
      at = border;
    }
    done = std::max(done, end);
  }
  return ranges;
}

/// Updates holes in the granules that a block touches after their memory has changed.
void Region::settle_holes(Block* around) {
  const Bytes granularity = backing_.granularity();
  const driver::DevicePtr begin = down(around->at, granularity);
  const Range where{begin, distance(begin, up(around->end(), granularity))};
  for (Block* block = first_in(around, where); block != nullptr && block->at < where.end();) {
    Block* next = block->after;
    if (block->state == BlockState::kHole) {
      const driver::DevicePtr border = backing_.border(block->at, block->end());
      Block* const part = carve(block, {block->at, distance(block->at, border)});
      next = part->after;
      if (backing_.around(part->at) != backing_.chunks().end()) {
        part->state = BlockState::kFree;
        merge_and_list(part);
      } else if (backing_.is_stuck(part->at)) {
        part->state = BlockState::kStuck;
      }
    }
    block = next;
  }
}

}  // namespace spillway
