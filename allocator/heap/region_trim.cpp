// SPDX-License-Identifier: Apache-2.0
// Memory that leaves a heap region: released to the driver, or moved to other addresses.
#include "allocator/heap/region_hits.h"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

namespace spillway {

Bytes Region::trim() {
  if (scattered_) join_free(true);
  std::vector<FreeChunk> chunks = free_chunks();
  std::erase_if(chunks, [&](const FreeChunk& each) SPILLWAY_REQUIRES(mutex) {
    return !settle_sync(each.block).ok();
  });
  if (chunks.empty() || !wait_for_stream_sync().ok()) return {};
  return release(chunks, [&](const Block&, Range run) SPILLWAY_REQUIRES(mutex) {
    return backing_.unmap(run);
  });
}

Bytes Region::trim_some(Bytes enough, Waits waits) {
  if (waits != Waits::kOfHost) return move_out(enough, waits);
  if (scattered_) join_free(true);
  std::vector<FreeChunk> chunks = free_chunks();
  std::erase_if(chunks, [&](const FreeChunk& each) SPILLWAY_REQUIRES(mutex) {
    return !seen_to_pass(each.block);
  });
  keep_oldest(chunks, enough);
  std::uint64_t last = 0;
  for (const FreeChunk& each : chunks)
    last = std::max(last, each.block->freed_at);
  if (!mark().ok() || chunks.empty() || !wait_for_frees_sync(last).ok()) return {};
  return release(chunks, [&](const Block&, Range run) SPILLWAY_REQUIRES(mutex) {
    return backing_.unmap(run);
  });
}

Bytes Region::move_out(Bytes enough, Waits waits) {
  if (written_while_free(key_.pool)) return {};
  std::vector<FreeChunk> chunks = movable_chunks(waits);
  keep_oldest(chunks, enough);
  if (chunks.empty()) return {};
  driver::progress::rely_on(this);
  const Result<driver::Fence> now = mark();
  if (!now.ok()) return {};
  return release(chunks, [&](const Block& block, Range run) SPILLWAY_REQUIRES(mutex) {
    driver::FenceSet uses{now.value()};
    if (block.ties != nullptr) uses.add(block.ties->fences);
    backing_.leave(run, uses);
    return true;
  });
}

Bytes Region::movable() {
  if (written_while_free(key_.pool)) return {};
  Bytes bytes;
  for (const FreeChunk& each : movable_chunks(Waits::kNone))
    bytes += each.where.size;
  return bytes;
}

/// Completely free chunks that SpareChunks keeps.
std::vector<Region::FreeChunk> Region::movable_chunks(Waits waits) {
  if (scattered_) {
    join_free(waits != Waits::kNone);
  } else {
    forget_all_passed();
  }
  std::vector<FreeChunk> chunks = free_chunks();
  std::erase_if(chunks, [&](const FreeChunk& each) SPILLWAY_REQUIRES(mutex) {
    if (!backing_.keeps(each.where.begin)) return true;
    return each.block->ties != nullptr && waits == Waits::kNone;
  });
  return chunks;
}

/// Leaves the first ones in the order in which they become free, until those have `enough` bytes.
void Region::keep_oldest(std::vector<FreeChunk>& chunks, Bytes enough) {
  std::stable_sort(chunks.begin(), chunks.end(), [](const FreeChunk& left, const FreeChunk& right) {
    const auto place = [](const Block& block) {
      return std::tuple(block.ties != nullptr, block.last_point(), block.freed_at);
    };
    return place(*left.block) < place(*right.block);
  });
  // A surplus costs calls to the driver, so only the last one may exceed what is left to find.
  Bytes found;
  std::vector<bool> stays(chunks.size());
  for (const bool last : {false, true}) {
    for (std::size_t each = 0; each < chunks.size() && found < enough; ++each) {
      const Bytes size = chunks[each].where.size;
      if (stays[each] || (!last && size > enough - found)) continue;
      stays[each] = true;
      found += size;
    }
  }
  std::size_t next = 0;
  std::erase_if(chunks, [&](const FreeChunk&) { return !stays[next++]; });  // their order remains
}

/// A point of the stream, for the frees before it.
Result<driver::Fence> Region::mark() {
  constexpr std::size_t kMostMarks = 64;
  SPILLWAY_ASSIGN_OR_RETURN(const driver::Fence now, timelines_.of(stream()).mark());
  marks_.push_back(now);
  ++next_mark_;
  if (marks_.size() > kMostMarks) marks_.pop_front();
  return now;
}

/// Blocks the host until the device has finished with what was freed by then.
Status Region::wait_for_frees_sync(std::uint64_t freed_at) {
  if (written_while_free(key_.pool)) return wait_for_stream_sync();
  const std::uint64_t first = next_mark_ - marks_.size();
  return driver::Timeline::wait_sync(marks_[freed_at < first ? 0 : freed_at - first]);
}

Bytes Region::trimmable() {
  if (scattered_) join_free(true);
  Bytes bytes;
  for (const FreeChunk& each : free_chunks())
    bytes += each.where.size;
  return bytes;
}

/// The completely free chunks, those of small blocks first. A block's last one comes first: without
/// it the block remains the first part.
std::vector<Region::FreeChunk> Region::free_chunks() const {
  std::vector<FreeChunk> chunks;
  for (Block* const block : free_.all()) {
    if (block->size < backing_.granularity()) continue;
    const auto begin = backing_.chunks().lower_bound(block->at);
    for (auto chunk = backing_.chunks().lower_bound(block->end()); chunk != begin;) {
      --chunk;
      const Range where{chunk->first, chunk->second.size};
      if (block->range().contains(where)) chunks.push_back({block, where});
    }
  }
  return chunks;
}

/// Calls `leave(block, run)` for each run of adjacent chunks of a block, which become gaps where
/// that is true.
template <typename Leave>
Bytes Region::release(const std::vector<FreeChunk>& chunks, const Leave& leave) {
  Bytes gone;
  for (auto each = chunks.begin(); each != chunks.end();) {
    Block* const block = each->block;
    Range run = each->where;
    for (++each; each != chunks.end() && each->block == block && each->where.end() == run.begin;
         ++each) {
      run = {each->where.begin, each->where.size + run.size};
    }
    if (!leave(*block, run)) continue;
    gone += run.size;
    change_state(block, run, BlockState::kGap);
  }
  return gone;
}

}  // namespace spillway
