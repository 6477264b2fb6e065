// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/region.h"

#include "allocator/driver/progress.h"
#include "allocator/heap/deferred_waits.h"
#include "allocator/heap/region_hits.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <vector>

namespace spillway {
namespace {

using namespace literals;

/// No two allocated blocks of a tier begin in the same unit.
Bytes table_unit(Tier tier) {
  return tier == Tier::kSmall || tier == Tier::kReplay ? 512_B : 64_KiB;
}

}  // namespace

Region::Region(const RegionParts& parts, RegionKey key, Range range)
    : account_(parts.accounting.account_of(key.stream)),
      table_(range, table_unit(key.tier)),
      backing_(parts.device,
               parts.addresses.memory(),
               parts.addresses.granularity(),
               parts.addresses.most_chunk(),
               parts.access,
               parts.accounting,
               parts.spares),
      device_(parts.device),
      key_(key),
      range_(range),
      timelines_(parts.timelines),
      first_(records_.make(range.begin, range.size, BlockState::kGap)),
      gaps_(first_) {}

void Region::read(HeapStats& stats) const {
  stats.cached += cached_;
  stats.pending += pending_;
  stats.evicted += evicted_;
  stats.allocations += counts_.allocations;
  stats.frees += counts_.frees;
  stats.allocated_total += counts_.allocated_total;
  stats.requested_total += counts_.requested_total;
  stats.fence_waits += counts_.fence_waits;
  const std::set<driver::DevicePtr> in_use = chunks_in_use();
  for (const Block* const block : free_.all()) {
    Bytes stranded;
    for (driver::DevicePtr at = block->at; at < block->end();) {
      const driver::DevicePtr border = backing_.border(at, block->end());
      const auto chunk = backing_.around(at);
      if (chunk != backing_.chunks().end() && in_use.contains(chunk->first))
        stranded += distance(at, border);
      at = border;
    }
    stats.stranded += stranded;
    if (!stranded.zero()) ++stats.stranded_blocks;
  }
}

/// The beginnings of the chunks that contain an allocated block.
std::set<driver::DevicePtr> Region::chunks_in_use() const {
  std::set<driver::DevicePtr> in_use;
  for (const Block* block = first_; block != nullptr; block = block->after) {
    if (block->state != BlockState::kLive) continue;
    for (driver::DevicePtr at = block->at; at < block->end();
         at = backing_.border(at, block->end())) {
      const auto chunk = backing_.around(at);
      if (chunk != backing_.chunks().end()) in_use.insert(in_use.end(), chunk->first);
    }
  }
  return in_use;
}

Block* Region::any_fitting(Bytes size) {
  return fitting(size, std::numeric_limits<int>::max());
}

Block* Region::any_settled(Bytes size) {
  scattered_ = true;
  if (Block* const block = smallest_settled(size)) return block;
  join_free(false);
  return smallest_settled(size);
}

Block* Region::any_joined(Bytes size) {
  if (!scattered_) return nullptr;
  join_free(true);
  return any_fitting(size);
}

Block* Region::smallest_settled(Bytes size) const {
  Block* best = nullptr;
  for (Block* const block : free_.all()) {
    if (block->ties != nullptr || block->size < size) continue;
    if (best == nullptr || block->size < best->size) best = block;
  }
  return best;
}

Status Region::grow(Bytes size) {
  const auto growth = cheapest_growth(size);
  if (!growth) {
    return SPILLWAY_ERROR(Code::kOutOfDeviceMemory,
                          "the address range of this stream and memory pool is used up");
  }
  for (Block* const neighbor : {growth->left, growth->right}) {
    if (neighbor == nullptr || seen_to_pass(neighbor)) continue;
    SPILLWAY_RETURN_IF_ERROR(settle(neighbor));
  }
  SPILLWAY_RETURN_IF_ERROR(map(growth->where));

  // No call below may fail.
  change_state(growth->gap, growth->where, BlockState::kFree);
  return {};
}

Status Region::map(Range where, const std::vector<driver::DevicePtr>* cuts) {
  const std::size_t stuck = backing_.stuck().size();
  Status status = backing_.map(where, cuts);
  for (std::size_t i = stuck; i < backing_.stuck().size(); ++i) {
    const Range lost = backing_.stuck()[i];
    for (Block* block = first_; block != nullptr; block = block->after) {
      if (block->state != BlockState::kGap || !block->range().contains(lost)) continue;
      change_state(block, lost, BlockState::kStuck);
      break;
    }
  }
  return status;
}

std::optional<Region::Growth> Region::cheapest_growth(Bytes size) const {
  std::optional<Growth> best;
  const auto consider = [&](const Growth& growth) {
    const bool cheaper = !best || growth.where.size < best->where.size;
    const bool lower =
        best && growth.where.size == best->where.size && growth.where.begin < best->where.begin;
    if (cheaper || lower) best = growth;
  };
  const auto free_or_null = [](Block* block) {
    return block != nullptr && block->state == BlockState::kFree ? block : nullptr;
  };
  for (Block* gap = gaps_; gap != nullptr; gap = gap->listed_after) {
    Block* const left = free_or_null(gap->before);
    Block* const right = free_or_null(gap->after);
    // Neither neighbor is large enough alone; otherwise no growth would have been requested.
    const Bytes left_size = left == nullptr ? Bytes{} : left->size;
    const Bytes right_size = right == nullptr ? Bytes{} : right->size;
    const Bytes after_left = (size - left_size).rounded_up(backing_.granularity());
    const Bytes before_right = (size - right_size).rounded_up(backing_.granularity());
    if (after_left < gap->size) consider({gap, {gap->at, after_left}, left, nullptr});
    if (before_right < gap->size) {
      consider({gap, {gap->at + (gap->size - before_right), before_right}, nullptr, right});
    }
    if (left_size + gap->size + right_size >= size) consider({gap, gap->range(), left, right});
  }
  return best;
}

Result<Block*> Region::take(Block* block, Bytes size, Bytes requested, TagId tag) {
  if (!seen_to_pass(block)) {
    if (DeferredWaits::defer(block->ties->fences)) {
      unlist(block);
      if (block->size > size) list(split(block, size));
      block->ties.reset();
      hand_out(block, requested, tag);
      return block;
    }
    SPILLWAY_RETURN_IF_ERROR(settle(block));
  }
  return take_settled(block, size, requested, tag);
}

Result<Block*> Region::fresh(Bytes size, Bytes requested, TagId tag) {
  const Bytes whole = size.rounded_up(backing_.granularity());
  Block* gap = nullptr;
  for (Block* block = gaps_; block != nullptr; block = block->listed_after) {
    if (block->size >= whole && (gap == nullptr || block->at < gap->at)) gap = block;
  }
  if (gap == nullptr) {
    return SPILLWAY_ERROR(Code::kOutOfDeviceMemory,
                          "the address range of this stream and memory pool is used up");
  }
  const Range where{gap->at, whole};
  SPILLWAY_RETURN_IF_ERROR(map(where));

  // No call below may fail.
  unlist(gap);
  Block* const block = carve(gap, where);
  if (whole > size) {
    Block* const rest = split(block, size);
    rest->state = BlockState::kFree;
    merge_and_list(rest);
  }
  hand_out(block, requested, tag);
  return block;
}

/// Converts the recorded uses of a freed block to fences.
void Region::promise_fences(Block* block) {
  for (driver::Timeline* const user : block->ties->users)
    block->ties->fences.add(user->promise());
  block->ties->users.clear();
  if (block->ties->fences.empty()) block->ties.reset();
}

Bytes Region::trim() {
  if (scattered_) join_free(true);
  std::vector<FreeChunk> chunks = free_chunks();
  std::erase_if(chunks, [&](const FreeChunk& each) SPILLWAY_REQUIRES(mutex) {
    return !settle_sync(each.block).ok();
  });
  if (chunks.empty() || !wait_for_stream_sync().ok()) return {};
  return unmap(chunks);
}

Bytes Region::trim_some(Bytes enough) {
  constexpr std::size_t kMostMarks = 64;
  if (scattered_) join_free(true);
  std::vector<FreeChunk> chunks = free_chunks();
  std::erase_if(chunks, [&](const FreeChunk& each) SPILLWAY_REQUIRES(mutex) {
    return !seen_to_pass(each.block);
  });
  std::stable_sort(chunks.begin(), chunks.end(), [](const FreeChunk& left, const FreeChunk& right) {
    return left.block->freed_at < right.block->freed_at;
  });
  Bytes found;
  std::uint64_t last = 0;
  auto end = chunks.begin();
  for (; end != chunks.end() && found < enough; ++end) {
    found += end->where.size;
    last = end->block->freed_at;
  }
  chunks.erase(end, chunks.end());
  Result<driver::Fence> mark = timelines_.of(stream()).mark();
  if (!mark.ok()) return {};
  marks_.push_back(mark.value());
  ++next_mark_;
  if (marks_.size() > kMostMarks) marks_.pop_front();
  if (chunks.empty() || !wait_for_frees_sync(last).ok()) return {};
  return unmap(chunks);
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

Bytes Region::unmap(const std::vector<FreeChunk>& chunks) {
  Bytes back;
  for (auto each = chunks.begin(); each != chunks.end();) {
    Block* const block = each->block;
    Range run = each->where;  // of one call to the driver
    for (++each; each != chunks.end() && each->block == block && each->where.end() == run.begin;
         ++each) {
      run = {each->where.begin, each->where.size + run.size};
    }
    if (!backing_.unmap(run)) continue;
    back += run.size;
    change_state(block, run, BlockState::kGap);
  }
  return back;
}

Result<SharedMemory> Region::share(Block* block) {
  Result<SharedMemory> memory = backing_.share(block->range());
  if (memory.ok()) block->shared = true;
  return memory;
}

Status Region::wait_for_stream_sync() {
  // Graphs are replayed on any stream.
  if (written_while_free(key_.pool)) {
    const driver::CurrentDevice current(*device_.api, device_.context);
    const driver::OutsideCaptures outside(*device_.api);
    driver::count_host_sync();
    return SPILLWAY_CALL(*device_.api, CtxSynchronize);
  }
  SPILLWAY_ASSIGN_OR_RETURN(const driver::Fence all, timelines_.of(stream()).mark());
  return driver::Timeline::wait_sync(all);
}

bool Region::forget_passed(Block* block) {
  if (!block->ties->fences.drop_passed()) return false;
  driver::progress::share(this);
  block->ties.reset();
  pending_ -= block->size;
  return true;
}

/// Among the first blocks as large as `otherwise`, one whose fences have passed, or else the one
/// that will pass first. Queries only the earliest fence of each timeline.
Block* Region::first_to_pass(Block* list, Block* otherwise) {
  std::array<Block*, 4> earliest{};
  const auto of = [](const Block* block) {
    return *block->ties->fences.begin();
  };
  int left = kMaxCompared;
  for (Block* block = list; block != nullptr && left > 0; block = block->listed_after, --left) {
    if (block->size != otherwise->size) continue;
    if (block->ties == nullptr) return block;
    const driver::FenceSet& fences = block->ties->fences;
    if (fences.end() - fences.begin() != 1) continue;
    for (Block*& each : earliest) {
      if (each != nullptr && of(each).timeline != of(block).timeline) continue;
      if (each == nullptr || of(block).point < of(each).point) each = block;
      break;
    }
  }
  for (Block* const block : earliest)
    if (block != nullptr && forget_passed(block)) return block;
  return earliest.front() != nullptr ? earliest.front() : otherwise;
}

/// Orders the heap region's stream after the fences of a free block, and drops them.
Status Region::settle(Block* block) {
  const driver::CurrentDevice current(*device_.api, device_.context);
  SPILLWAY_ASSIGN_OR_RETURN(const std::uint64_t waits, block->ties->fences.wait(stream()));
  counts_.fence_waits += waits;
  block->ties.reset();
  pending_ -= block->size;
  return {};
}

Status Region::settle_sync(Block* block) {
  if (block->ties == nullptr) return {};
  SPILLWAY_RETURN_IF_ERROR(block->ties->fences.wait_sync());
  block->ties.reset();
  pending_ -= block->size;
  return {};
}

}  // namespace spillway
