// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/replay_region.h"

#include "allocator/heap/region_hits.h"

#include <algorithm>
#include <utility>

namespace spillway {

/// As take, for requests that the cursor does not match.
driver::DevicePtr ReplayRegion::take_checked(Bytes requested, TagId tag) {
  if (cursor_.pass(requested)) return {};
  open();
  if (differs_ || !has_plan_) return {};
  const std::optional<std::size_t> index = planned(requested);
  if (!index) {
    miss(requested);
    return {};
  }
  Request& request = requests_[*index];
  if (request.placed && !ready(request)) return {};
  pass_to(*index);
  if (!request.placed) return {};
  if (!vacate(request)) {
    differ(request.block.size);
    return {};
  }
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

/// The request of the plan that a request of this size is: the next one. After a request that the
/// plan does not have there, it may also be the one after the next, which was of another size, or a
/// later one that follows such a request in the plan.
std::optional<std::size_t> ReplayRegion::planned(Bytes requested) const {
  constexpr std::size_t kMostSkipped = 256;
  if (differs_ || !has_plan_ || next_ == requests_.size()) return std::nullopt;
  if (requests_[next_].requested == requested) return next_;
  if (missed_in_a_row_ == 0) return std::nullopt;
  const std::size_t end = std::min(requests_.size(), next_ + kMostSkipped);
  if (next_ + 1 < end && requests_[next_ + 1].requested == requested) return next_ + 1;
  for (std::size_t i = next_ + 1; i < end; ++i) {
    if (requests_[i].requested == requested && requests_[i - 1].requested == last_missed_) return i;
  }
  return std::nullopt;
}

/// The request at this index is served, or left to the heap if it has no address.
void ReplayRegion::pass_to(std::size_t index) {
  for (; next_ < index; ++next_)
    differ(requests_[next_].block.size);
  ++next_;
  missed_in_a_row_ = 0;
}

void ReplayRegion::leave_out(Bytes requested) {
  const std::optional<std::size_t> index = planned(requested);
  if (!index) return;
  const int missed = missed_in_a_row_;
  pass_to(*index);
  missed_in_a_row_ = missed;
  miss(requests_[*index].requested);
}

/// A request that the plan does not have here, or has no memory for.
void ReplayRegion::miss(Bytes requested) {
  constexpr int kMostMissed = 64;
  last_missed_ = requested;
  differ(requested);
  if (++missed_in_a_row_ > kMostMissed) fall_back();
}

/// The step differs from the plan by a block of this size.
void ReplayRegion::differ(Bytes size) {
  if (differing_.zero() && !differs_) ++counts_.replay_mismatches;
  if (differing_ < total_) differing_ += std::min(size, total_);  // no sum of huge ones
}

bool ReplayRegion::differs_much() const {
  constexpr std::uint64_t kShare = 16;
  return differs_ || differing_.count() > total_.count() / kShare;
}

void ReplayRegion::fall_back() {
  differ({});
  differs_ = true;
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
  if ((next_ != 0 || !differing_.zero()) && !differs_) {
    for (; next_ < requests_.size(); ++next_)
      differ(requests_[next_].block.size);
  }
  const bool differed = differs_much();
  begin_step();
  mapped_ = all_ready();
  if (taken_.empty() && plain_ && mapped_) cursor_.begin();
  return !differed;
}

void ReplayRegion::begin_step() {
  next_ = 0;
  missed_in_a_row_ = 0;
  differing_ = {};
  differs_ = false;
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
