// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/region.h"

#include "allocator/driver/progress.h"
#include "allocator/heap/deferred_waits.h"
#include "allocator/heap/region_hits.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <tuple>
#include <utility>
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
               parts.spares,
               written_while_free(key.pool)
                   ? std::nullopt
                   : std::optional(driver::Stream(key.stream, parts.device.id))),
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
  if (!scattered_) return fitting(size, std::numeric_limits<int>::max());
  Block* const settled = smallest_settled(size);
  return settled != nullptr ? settled : first_fenced(size);
}

Block* Region::any_settled(Bytes size) {
  scattered_ = true;
  if (Block* const block = smallest_settled(size)) return block;
  join_free(false);
  return smallest_settled(size);
}

/// Of the free blocks with fences, one whose fences pass first; null if there is none.
Block* Region::first_fenced(Bytes size) const {
  Block* first = nullptr;
  for (Block* const block : free_.all()) {
    if (block->ties == nullptr || block->size < size) continue;
    const auto place = [](const Block& of) {
      return std::pair(of.last_point(), of.size);
    };
    if (first == nullptr || place(*block) < place(*first)) first = block;
  }
  return first;
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

Result<Block*> Region::grow(Bytes size) {
  const auto growth = cheapest_growth(size);
  if (!growth) {
    return SPILLWAY_ERROR(Code::kOutOfDeviceMemory,
                          "the address range of this stream and memory pool is used up");
  }
  driver::FenceSet uses;
  SPILLWAY_RETURN_IF_ERROR(map(growth->where, nullptr, &uses));

  // No call below may fail.
  unlist(growth->gap);
  Block* block = carve(growth->gap, growth->where);
  block->state = BlockState::kFree;
  tie(block, uses);
  const bool apart = std::exchange(scattered_, false);  // its neighbors join with their fences
  block = merge(block);
  scattered_ = apart;
  list(block);
  return block;
}

/// A range at one end of a gap for this many bytes, and for those that spare chunks have beyond
/// them. Sets `waits` if mapping there waits on the host.
Range Region::end_of_gap(Range gap, bool at_begin, Bytes size, bool& waits) const {
  const Bytes whole = size + backing_.surplus(size);
  const Bytes taken = std::min(whole, gap.size);
  const Range where{at_begin ? gap.begin : gap.begin + (gap.size - taken), taken};
  waits = whole > gap.size || backing_.must_wait(where);
  return where;
}

/// An unlisted block that may be used after that.
void Region::tie(Block* block, const driver::FenceSet& uses) {
  if (uses.empty()) return;
  block->ties = std::make_unique<PendingUses>();
  block->ties->fences.add(uses);
}

Status Region::map(Range where,
                   const std::vector<driver::DevicePtr>* cuts,
                   driver::FenceSet* uses) {
  const std::size_t stuck = backing_.stuck().size();
  // Graphs are replayed on any stream, so the host waits.
  Status status = backing_.map(where, cuts, written_while_free(key_.pool) ? nullptr : uses);
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
  bool best_waits = false;
  const auto consider = [&](const Growth& growth, bool waits) {
    const auto place = [](const Growth& of, bool of_waits) {
      return std::tuple(of_waits, of.where.size, of.where.begin);
    };
    if (best && !(place(growth, waits) < place(*best, best_waits))) return;
    best = growth;
    best_waits = waits;
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
    bool waits = false;
    if (after_left < gap->size) {
      const Range where = end_of_gap(gap->range(), true, after_left, waits);
      consider({gap, where, left, nullptr}, waits);
    }
    if (before_right < gap->size) {
      const Range where = end_of_gap(gap->range(), false, before_right, waits);
      consider({gap, where, nullptr, right}, waits);
    }
    if (left_size + gap->size + right_size >= size) {
      waits = !backing_.surplus(gap->size).zero() || backing_.must_wait(gap->range());
      consider({gap, gap->range(), left, right}, waits);
    }
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
  Range where{};
  bool waits = false;
  for (Block* block = gaps_; block != nullptr; block = block->listed_after) {
    if (block->size < whole) continue;
    bool must_wait = false;
    const Range taken = end_of_gap(block->range(), true, whole, must_wait);
    if (gap != nullptr && std::pair(must_wait, block->at) > std::pair(waits, gap->at)) continue;
    gap = block;
    where = taken;
    waits = must_wait;
  }
  if (gap == nullptr) {
    return SPILLWAY_ERROR(Code::kOutOfDeviceMemory,
                          "the address range of this stream and memory pool is used up");
  }
  driver::FenceSet uses;
  SPILLWAY_RETURN_IF_ERROR(map(where, nullptr, &uses));

  // No call below may fail.
  unlist(gap);
  Block* const block = carve(gap, where);
  tie(block, uses);
  if (where.size > size) {
    Block* const rest = split(block, size);
    rest->state = BlockState::kFree;
    merge_and_list(rest);
  }
  const Status waited = DeferredWaits::defer(uses) ? Status() : backing_.use_after(uses);
  if (!waited.ok()) {
    block->state = BlockState::kFree;
    merge_and_list(block);
    return waited;
  }
  block->ties.reset();
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
