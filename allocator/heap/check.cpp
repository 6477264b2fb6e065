// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/heap.h"
#include "allocator/heap/heap_state.h"

#include <map>
#include <set>

namespace spillway {
namespace {

/// Chunks and gaps cover the range without overlap; gives the mapped bytes, nothing where they do
/// not.
std::optional<Bytes> mapped_bytes(const Backing& backing) {
  std::map<driver::DevicePtr, Bytes> parts = backing.gaps();
  Bytes gaps;
  for (const auto& [at, size] : parts)
    gaps += size;
  Bytes mapped;
  for (const auto& [at, chunk] : backing.chunks()) {
    if (!parts.emplace(at, chunk.size).second) return std::nullopt;
    mapped += chunk.size;
  }
  driver::DevicePtr end = backing.range().begin;
  for (const auto& [at, size] : parts) {
    if (at < end) return std::nullopt;
    end = at + size;
  }
  if (gaps + mapped + backing.stuck() != backing.range().size) return std::nullopt;
  return mapped;
}

std::string block_in_a_gap(const Backing& backing, const Region::Blocks& blocks) {
  for (const auto& [gap, size] : backing.gaps()) {
    const auto next = blocks.lower_bound(gap);
    if (next != blocks.end() && next->first < gap + size) return "a block is not mapped";
    if (next == blocks.begin()) continue;
    const auto last = std::prev(next);
    if (last->first + last->second.size > gap) return "a block reaches into a gap";
  }
  return {};
}

}  // namespace

std::string Region::check() const {
  const auto mapped = mapped_bytes(backing_);
  if (!mapped) return "chunks and gaps do not cover the region";
  Bytes tiled;
  Bytes pending;
  std::size_t free_blocks = 0;
  const Block* previous = nullptr;
  driver::DevicePtr end;
  for (const auto& [at, block] : blocks_) {
    if (at < end) return "blocks overlap";
    const bool free = block.state == BlockState::kFree;
    const bool after_free = previous != nullptr && previous->state == BlockState::kFree;
    if (at == end && free && after_free) return "two free neighbours are not one";
    if (free && !free_.contains({block.size, at})) return "a free block is not listed";
    if (free && !block.fences.empty()) pending += block.size;
    if (free) ++free_blocks;
    tiled += block.size;
    previous = &block;
    end = at + block.size;
  }
  if (free_blocks != free_.size()) return "what is listed as free is not";
  if (pending != pending_) return "pending bytes are counted wrong";
  // Blocks touch no gap and are as many bytes as are mapped: so they cover the chunks exactly.
  if (std::string wrong = block_in_a_gap(backing_, blocks_); !wrong.empty()) return wrong;
  if (tiled != *mapped) return "blocks do not cover what is mapped";
  return {};
}

std::string Heap::check() const {
  const Lock lock(state_->mutex);
  const HeapStats stats = state_->stats;
  HeapStats sum;
  for (const auto& [begin, region] : state_->regions) {
    if (std::string wrong = region->check(); !wrong.empty()) return wrong;
    for (const auto& [at, chunk] : region->backing().chunks())
      sum.held += chunk.size;
    for (const auto& [at, block] : region->blocks()) {
      if (block.state == BlockState::kLost) sum.lost += block.size;
      if (block.state != BlockState::kLive) continue;
      ++sum.live_blocks;
      sum.live += block.size;
      sum.requested += block.requested;
    }
  }
  if (sum.held != stats.held) return "held bytes are counted wrong";
  if (sum.live != stats.live) return "live bytes are counted wrong";
  if (sum.requested != stats.requested) return "requested bytes are counted wrong";
  if (sum.lost != stats.lost) return "lost bytes are counted wrong";
  if (sum.live_blocks != stats.live_blocks) return "live blocks are counted wrong";
  if (stats.allocations - stats.frees != stats.live_blocks) return "calls are counted wrong";
  return {};
}

}  // namespace spillway
