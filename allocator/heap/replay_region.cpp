// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/replay_region.h"

#include "allocator/heap/region_hits.h"

#include <algorithm>
#include <utility>

namespace spillway {
Status ReplayRegion::adopt(const ReplayPlan& plan, std::optional<Bytes> room) {
  SPILLWAY_CHECK(idle());
  page_ = plan.page.zero() ? backing_.granularity() : plan.page;
  const Bytes all = plan.size.rounded_up(page_);
  const Bytes first = std::min(all, room.value_or(all)).rounded_down(page_);
  // One large mapping takes the driver far less time than many small ones.
  Status mapped = first.zero() ? Status() : map({range().begin, first}, room ? page_ : Bytes{});
  if (!room) SPILLWAY_RETURN_IF_ERROR(std::move(mapped));

  // No call below may fail.
  place_requests(plan);
  set_cursor_events(plan.sequence);
  next_ = 0;
  has_plan_ = true;
  plain_ = plan.plain;
  mapped_ = !room;  // and not those of another replay plan
  mapped_ = all_ready();
  differs_ = false;
  if (plain_ && mapped_) cursor_.begin();
  return {};
}

void ReplayRegion::place_requests(const ReplayPlan& plan) {
  const std::vector<StepRequest>& steps = plan.sequence.requests;
  requests_ = std::vector<Request>(steps.size());
  parts_.clear();
  driver::DevicePtr view = range().begin + plan.size.rounded_up(page_);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    Request& request = requests_[i];
    request.requested = steps[i].requested;
    request.block.size = steps[i].size;
    request.part = static_cast<std::uint32_t>(parts_.size());
    if (plan.offsets[i]) {
      request.block.at = range().begin + *plan.offsets[i];
      parts_.push_back(request.block.range());
    } else if (!plan.pages[i].empty() &&
               plan.pages[i].size() * page_.count() <= distance(view, range().end()).count()) {
      request.viewed = true;
      request.block.at = view;
      for (const std::uint32_t page : plan.pages[i])
        parts_.push_back({range().begin + Bytes{page * page_.count()}, page_});
      view = view + Bytes{plan.pages[i].size() * page_.count()};
    }
    request.part_end = static_cast<std::uint32_t>(parts_.size());
    request.placed = request.part != request.part_end;
    if (request.placed) request.block.state = BlockState::kFree;
  }
}

/// Whole pages.
std::vector<Range> ReplayRegion::unmapped(const Request& request) const {
  std::vector<Range> ranges;
  for (const Range& part : parts_of(request)) {
    driver::DevicePtr at = range().begin + distance(range().begin, part.begin).rounded_down(page_);
    const driver::DevicePtr end =
        range().begin + distance(range().begin, part.end()).rounded_up(page_);
    while (at < end) {
      const driver::DevicePtr border = backing_.border(at, end);
      if (backing_.around(at) == backing_.chunks().end()) {
        ranges.push_back({at, distance(at, border)});
      }
      at = border;
    }
  }
  return ranges;
}

/// Whether all its memory is mapped at its addresses.
bool ReplayRegion::ready(const Request& request) const {
  return mapped_ || !request.placed ||
         ((!request.viewed || backing_.is_view(request.block.at)) && unmapped(request).empty());
}

bool ReplayRegion::all_ready() const {
  return std::all_of(
      requests_.begin(), requests_.end(), [&](const Request& request) SPILLWAY_REQUIRES(mutex) {
        return ready(request);
      });
}

std::optional<Bytes> ReplayRegion::lacks_memory(Bytes requested) const {
  if (differs_ || !has_plan_ || next_ == requests_.size()) return std::nullopt;
  const Request& next = requests_[next_];
  if (next.requested != requested || ready(next)) return std::nullopt;
  Bytes bytes;
  for (const Range& range : unmapped(next))
    bytes += range.size;
  return bytes;
}

Status ReplayRegion::map_next(Bytes requested) {
  if (!lacks_memory(requested)) return {};
  const Request& next = requests_[next_];
  for (const Range& range : unmapped(next)) {
    if (backing_.is_stuck(range.begin)) {
      return SPILLWAY_ERROR(Code::kOutOfDeviceMemory,
                            "the memory of a replayed allocation cannot be mapped");
    }
    SPILLWAY_RETURN_IF_ERROR(map(range, page_));
  }
  if (!next.viewed || backing_.is_view(next.block.at)) return {};
  std::vector<driver::DevicePtr> pages;
  for (const Range& part : parts_of(next))
    pages.push_back(part.begin);
  return backing_.view(next.block.at, pages);
}

/// As take, for requests that the cursor does not match.
driver::DevicePtr ReplayRegion::take_checked(Bytes requested, TagId tag) {
  if (cursor_.pass(requested)) return {};
  open();
  if (differs_ || !has_plan_) return {};
  if (next_ == requests_.size() || requests_[next_].requested != requested) {
    fall_back();
    return {};
  }
  Request& request = requests_[next_];
  if (!request.placed) {
    ++next_;
    return {};
  }
  if (!ready(request)) return {};
  if (!vacate(request)) {
    fall_back();
    return {};
  }
  ++next_;
  account_.hand_out(tag, request.block.size, requested);
  hand_out(request, tag);
  return request.block.at;
}

/// Whether the addresses are unused. The stream waits for remaining uses of freed
/// blocks.
bool ReplayRegion::vacate(const Request& request) {
  for (const Range& part : parts_of(request)) {
    auto each = std::partition_point(taken_.begin(), taken_.end(), [&](const Taken& taken) {
      return taken.part.end() <= part.begin;
    });
    while (each != taken_.end() && each->part.begin < part.end()) {
      Block* const block = each->block;
      if (block->state == BlockState::kLive) return false;
      if (!seen_to_pass(block) && !settle(block).ok()) return false;
      const auto index = each - taken_.begin();
      const auto before = std::count_if(
          taken_.begin(), each, [block](const Taken& taken) { return taken.block == block; });
      release_addresses(block);
      each = taken_.begin() + (index - before);
    }
  }
  return true;
}

void ReplayRegion::hand_out(Request& request, TagId tag) {
  Region::hand_out(&request.block, request.requested, tag);
  for (const Range& part : parts_of(request)) {
    const auto after = std::partition_point(taken_.begin(), taken_.end(), [&](const Taken& each) {
      return each.part.begin < part.begin;
    });
    taken_.insert(after, {part, &request.block});
  }
  allocated_ += request.block.size;
  ++counts_.replayed_allocations;
}

void ReplayRegion::fall_back() {
  differs_ = true;
  ++counts_.replay_mismatches;
}

/// As release, for frees that the cursor does not match.
bool ReplayRegion::release_checked(driver::DevicePtr at) {
  open();
  Block* const block = table_.starting(at);
  if (block == nullptr || block->pinned) return false;
  account_.take_back(block->tag, block->size, block->requested);
  take_back(block);
  return true;
}

void ReplayRegion::take_back(Block* block) {
  ++counts_.frees;
  table_.remove(block);
  allocated_ -= block->size;
  block->requested = Bytes{};
  block->tag = TagId::kUntagged;
  block->shared = false;
  if (block->evicted) evicted_ -= block->size;
  block->evicted = false;
  if (block->ties != nullptr) promise_fences(block);
  if (block->ties != nullptr) {
    block->state = BlockState::kHole;
    pending_ += block->size;
    return;
  }
  release_addresses(block);
}

/// Releases the addresses of a freed block that is no longer used.
void ReplayRegion::release_addresses(Block* block) {
  block->state = BlockState::kFree;
  std::erase_if(taken_, [block](const Taken& taken) { return taken.block == block; });
}

bool ReplayRegion::end_step() {
  if (cursor_.on() && cursor_.at_begin()) return true;  // no request was made
  if (cursor_.on() && cursor_.at_end()) {
    end_cursor_step();
    return true;
  }
  open();
  free_passed();
  if (!has_plan_) return true;
  const bool asked = next_ != 0 || differs_;
  if (asked && next_ != requests_.size() && !differs_) fall_back();
  const bool differed = differs_;
  next_ = 0;
  differs_ = false;
  mapped_ = all_ready();
  if (taken_.empty() && plain_ && mapped_) cursor_.begin();
  return !differed;
}

/// Frees blocks whose last uses are observed to be complete.
void ReplayRegion::free_passed() {
  for (Block* const block : blocks_in_use()) {
    if (block->state == BlockState::kHole && seen_to_pass(block)) release_addresses(block);
  }
}

/// Allocated or still used blocks, in address order.
std::vector<Block*> ReplayRegion::blocks_in_use() const {
  std::vector<Block*> blocks;
  for (const Taken& taken : taken_)
    blocks.push_back(taken.block);
  std::sort(blocks.begin(), blocks.end(), [](const Block* left, const Block* right) {
    return left->at < right->at;
  });
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  return blocks;
}

bool ReplayRegion::in_use(Range memory) const {
  const auto each = std::partition_point(taken_.begin(), taken_.end(), [&](const Taken& taken) {
    return taken.part.end() <= memory.begin;
  });
  return each != taken_.end() && each->part.begin < memory.end();
}

/// Builds the list of allocated blocks and the gaps between them; valid until the next change.
const Block* ReplayRegion::first() const {
  between_.clear();
  Block* last = nullptr;
  const Block* head = nullptr;
  const auto append = [&](Block* block) {
    block->before = last;
    block->after = nullptr;
    if (last != nullptr) last->after = block;
    if (head == nullptr) head = block;
    last = block;
  };
  const auto fill = [&](driver::DevicePtr at, driver::DevicePtr end) SPILLWAY_REQUIRES(mutex) {
    while (at < end) {
      const driver::DevicePtr border = backing_.border(at, end);
      const bool mapped = backing_.around(at) != backing_.chunks().end();
      Block& block = between_.emplace_back();
      block.at = at;
      block.size = distance(at, border);
      block.state = mapped ? BlockState::kFree : BlockState::kGap;
      append(&block);
      at = border;
    }
  };
  driver::DevicePtr at = range().begin;
  for (Block* const block : blocks_in_use()) {
    if (block->state != BlockState::kLive) continue;
    fill(at, block->at);
    append(block);
    at = block->end();
  }
  fill(at, range().end());
  return head;
}

void ReplayRegion::read(HeapStats& stats) const {
  Region::read(stats);
  stats.replayed_allocations += counts_.replayed_allocations;
  stats.replay_mismatches += counts_.replay_mismatches;
  Bytes reserved;
  Bytes whole;  // in chunks without a block
  for (const auto& [at, chunk] : backing_.chunks()) {
    reserved += chunk.size;
    if (!in_use({at, chunk.size})) whole += chunk.size;
  }
  stats.cached += reserved - allocated_;
  stats.stranded += reserved - allocated_ - whole;
}

Bytes ReplayRegion::trim() {
  if (idle()) return {};
  open();  // before the wait: blocks taken meanwhile without the lock would not be waited for
  if (!wait_for_stream_sync().ok()) return {};
  has_plan_ = false;
  for (Block* const block : blocks_in_use()) {
    if (block->state == BlockState::kHole && settle_sync(block).ok()) release_addresses(block);
  }
  std::vector<Range> kept;  // the driver has not unmapped a view of it
  for (Request& request : requests_) {
    if (!request.viewed || request.block.state != BlockState::kFree) continue;
    if (!backing_.is_view(request.block.at) || backing_.end_view(request.block.at)) continue;
    for (const Range& part : parts_of(request))
      kept.push_back(part);
  }
  std::vector<Range> empty;
  for (const auto& [at, chunk] : backing_.chunks()) {
    const Range range{at, chunk.size};
    const bool seen = std::any_of(
        kept.begin(), kept.end(), [&](const Range& part) { return range.contains(part.begin); });
    if (!seen && !in_use(range)) empty.push_back(range);
  }
  Bytes gone;
  for (const Range& chunk : empty) {
    if (backing_.unmap(chunk)) gone += chunk.size;
  }
  if (taken_.empty() && backing_.chunks().empty()) requests_.clear();
  return gone;
}

Bytes ReplayRegion::evict(const std::vector<Block*>& blocks) {
  for (Block* const block : blocks) {
    if (!block->evicted) evicted_ += block->size;
    block->evicted = true;
  }
  return {};
}

Result<std::vector<Range>> ReplayRegion::back(std::vector<Block*>&) {
  return std::vector<Range>{};
}

void ReplayRegion::unback(const std::vector<Block*>&, const std::vector<Range>&) {}

void ReplayRegion::revive(const std::vector<Block*>& blocks) {
  for (Block* const block : blocks) {
    if (block->evicted) evicted_ -= block->size;
    block->evicted = false;
  }
}

std::string ReplayRegion::check() const {
  driver::DevicePtr end = range().begin;
  for (const Taken& taken : taken_) {
    if (taken.part.begin < end) return "the memory of two replayed blocks in use overlaps";
    end = taken.part.end();
    for (driver::DevicePtr at = taken.part.begin; at < end; at = backing_.border(at, end)) {
      if (backing_.around(at) == backing_.chunks().end()) return "a replayed block is not mapped";
    }
  }
  Bytes allocated;
  Bytes pending;
  Bytes evicted;
  for (const Block* const block : blocks_in_use()) {
    if (block->state == BlockState::kHole) pending += block->size;
    if (block->state != BlockState::kLive) continue;
    allocated += block->size;
    if (block->evicted) evicted += block->size;
    if (table_.starting(block->at) != block) return "the table misses a replayed block";
    const bool whole = backing_.around(block->at) != backing_.chunks().end();
    if (!whole && !backing_.is_view(block->at)) return "a replayed block is not to be seen";
  }
  if (allocated != allocated_) return "replayed bytes are counted wrong";
  if (pending != pending_) return "pending replayed bytes are counted wrong";
  if (evicted != evicted_) return "evicted replayed bytes are counted wrong";
  return {};
}

}  // namespace spillway
