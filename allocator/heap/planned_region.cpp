// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/planned_region.h"

#include "allocator/heap/placement.h"
#include "allocator/heap/region_hits.h"

#include <algorithm>
#include <map>
#include <utility>

namespace spillway {
namespace {

bool overlap(const Block& left, const Block& right) {
  return left.at < right.end() && right.at < left.end();
}

}  // namespace

StepPlan plan_of(StepSequence sequence) {
  std::vector<Lifetime> blocks;
  for (std::size_t i = 0; i < sequence.requests.size(); ++i) {
    const StepRequest& request = sequence.requests[i];
    if (request.placed) {
      blocks.push_back({request.size, static_cast<std::uint32_t>(i), request.died});
    }
  }
  const Placement placement = place(blocks);
  StepPlan plan{std::move(sequence), {}, placement.size};
  auto offset = placement.offsets.begin();
  for (const StepRequest& request : plan.sequence.requests)
    plan.offsets.push_back(request.placed ? *offset++ : Bytes{});
  return plan;
}

Status PlannedRegion::adopt(StepPlan plan) {
  SPILLWAY_CHECK(idle());
  SPILLWAY_RETURN_IF_ERROR(map({range().begin, plan.size.rounded_up(backing_.granularity())}));

  // Nothing below may fail.
  const std::vector<StepRequest>& steps = plan.sequence.requests;
  requests_ = std::vector<Request>(steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    Request& request = requests_[i];
    request.requested = steps[i].requested;
    request.placed = steps[i].placed;
    if (!request.placed) continue;
    request.block.at = range().begin + plan.offsets[i];
    request.block.size = steps[i].size;
    request.block.state = BlockState::kFree;
  }
  link_requests();
  plan_course(plan.sequence);
  course_.begin();
  next_ = 0;
  planned_ = true;
  differs_ = blocked_ = false;
  return {};
}

/// Finds for each request which others had parts of its place last. That those are free is enough:
/// each of them was handed out only when those before it were.
void PlannedRegion::link_requests() {
  std::map<driver::DevicePtr, std::pair<driver::DevicePtr, std::uint32_t>> latest;
  before_.clear();
  for (std::uint32_t i = 0; i < requests_.size(); ++i) {
    Request& request = requests_[i];
    request.before = request.before_end = static_cast<std::uint32_t>(before_.size());
    if (!request.placed) continue;
    const driver::DevicePtr begin = request.block.at;
    const driver::DevicePtr end = request.block.end();
    auto part = latest.lower_bound(begin);
    if (part != latest.begin() && std::prev(part)->second.first > begin) --part;
    while (part != latest.end() && part->first < end) {
      const driver::DevicePtr part_begin = part->first;
      const auto [part_end, owner] = part->second;
      if (std::find(before_.begin() + request.before, before_.end(), owner) == before_.end()) {
        before_.push_back(owner);
      }
      part = latest.erase(part);
      if (part_begin < begin) latest[part_begin] = {begin, owner};
      if (part_end > end) part = latest.insert({end, {part_end, owner}}).first;
    }
    latest[begin] = {end, i};
    request.before_end = static_cast<std::uint32_t>(before_.size());
  }
}

/// As take, for what the course does not know.
driver::DevicePtr PlannedRegion::take_checked(Bytes requested, TagId tag) {
  if (course_.pass(requested)) return {};
  open();
  if (differs_ || !planned_) return {};
  if (next_ == requests_.size() || requests_[next_].requested != requested) {
    fall_back();
    return {};
  }
  Request& request = requests_[next_];
  if (!request.placed) {
    ++next_;
    return {};
  }
  bool free = !request.blocked;
  for (std::uint32_t i = request.before; i < request.before_end; ++i)
    free = free && requests_[before_[i]].block.state == BlockState::kFree;
  if (!free) {
    fall_back();
    return {};
  }
  ++next_;
  account_.hand_out(tag, request.block.size, requested);
  hand_out(request, tag);
  return request.block.at;
}

void PlannedRegion::hand_out(Request& request, TagId tag) {
  Region::hand_out(&request.block, request.requested, tag);
  ++in_use_;
  live_ += request.block.size;
  ++counts_.plan_replayed;
}

void PlannedRegion::fall_back() {
  differs_ = true;
  ++counts_.plan_mismatches;
}

/// As give_back, for what the course does not know.
bool PlannedRegion::give_back_checked(driver::DevicePtr at) {
  open();
  Block* const block = table_.starting(at);
  if (block == nullptr || block->held) return false;
  account_.take_back(block->tag, block->size, block->requested);
  take_back(block);
  return true;
}

void PlannedRegion::take_back(Block* block) {
  ++counts_.frees;
  table_.remove(block);
  live_ -= block->size;
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
  free_place(block);
}

/// Nothing uses the place of a freed block any more.
void PlannedRegion::free_place(Block* block) {
  block->state = BlockState::kFree;
  --in_use_;
}

bool PlannedRegion::end_step() {
  if (course_.on() && course_.at_begin()) return true;  // nothing was asked for
  if (course_.on() && course_.at_end()) {
    end_course();
    return true;
  }
  open();
  for (Block* const block : taken()) {
    if (block->state == BlockState::kHole && seen_to_pass(block)) free_place(block);
  }
  if (!planned_) return true;
  block_taken_places();
  const bool asked = next_ != 0 || differs_;
  if (asked && next_ != requests_.size() && !differs_) fall_back();
  const bool differed = differs_;
  next_ = 0;
  differs_ = false;
  if (in_use_ == 0) course_.begin();
  return !differed;
}

void PlannedRegion::block_taken_places() {
  if (!blocked_ && in_use_ == 0) return;
  const std::vector<Block*> taken = this->taken();
  blocked_ = !taken.empty();
  for (Request& request : requests_) {
    request.blocked = std::any_of(taken.begin(), taken.end(), [&](const Block* block) {
      return request.placed && overlap(*block, request.block);
    });
  }
}

/// In address order. No two of them overlap.
std::vector<Block*> PlannedRegion::taken() const {
  std::vector<Block*> blocks;
  if (in_use_ == 0) return blocks;
  for (Request& request : requests_) {
    if (request.block.state == BlockState::kLive || request.block.state == BlockState::kHole) {
      blocks.push_back(&request.block);
    }
  }
  std::sort(blocks.begin(), blocks.end(), [](const Block* left, const Block* right) {
    return left->at < right->at;
  });
  return blocks;
}

/// Makes a list of the live blocks and what lies between them, which is good until the next change.
const Block* PlannedRegion::first() const {
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
  for (Block* const block : taken()) {
    if (block->state != BlockState::kLive) continue;
    fill(at, block->at);
    append(block);
    at = block->end();
  }
  fill(at, range().end());
  return head;
}

void PlannedRegion::read(HeapStats& stats) const {
  Region::read(stats);
  stats.plan_replayed += counts_.plan_replayed;
  stats.plan_mismatches += counts_.plan_mismatches;
  Bytes held;
  Bytes whole;  // in chunks without a live block
  const Block* block = backing_.chunks().empty() ? nullptr : first();
  for (const auto& [at, chunk] : backing_.chunks()) {
    held += chunk.size;
    const Range range{at, chunk.size};
    while (block != nullptr && block->end() <= range.begin)
      block = block->after;
    bool live = false;
    for (const Block* each = block; each != nullptr && each->at < range.end(); each = each->after)
      live = live || each->state == BlockState::kLive;
    if (!live) whole += chunk.size;
  }
  stats.cached += held - live_;
  stats.stranded += held - live_ - whole;
}

Bytes PlannedRegion::trim() {
  if (idle()) return {};
  open();  // before the wait: what is taken without the lock meanwhile would not be waited for
  if (!wait_for_stream_sync().ok()) return {};
  planned_ = false;
  for (Block* const block : taken()) {
    if (block->state == BlockState::kHole && settle_sync(block).ok()) free_place(block);
  }
  const std::vector<Block*> taken = this->taken();
  std::vector<Range> empty;
  for (const auto& [at, chunk] : backing_.chunks()) {
    const bool used =
        std::any_of(taken.begin(), taken.end(), [at = at, size = chunk.size](const Block* block) {
          return block->at < at + size && at < block->end();
        });
    if (!used) empty.push_back({at, chunk.size});
  }
  Bytes gone;
  for (const Range& chunk : empty) {
    if (backing_.unmap(chunk.begin)) gone += chunk.size;
  }
  if (taken.empty() && backing_.chunks().empty()) requests_.clear();
  return gone;
}

Bytes PlannedRegion::evict(const std::vector<Block*>& blocks) {
  for (Block* const block : blocks) {
    if (!block->evicted) evicted_ += block->size;
    block->evicted = true;
  }
  return {};
}

Result<std::vector<Range>> PlannedRegion::back(std::vector<Block*>&) {
  return std::vector<Range>{};
}

void PlannedRegion::unback(const std::vector<Block*>&, const std::vector<Range>&) {}

void PlannedRegion::revive(const std::vector<Block*>& blocks) {
  for (Block* const block : blocks) {
    if (block->evicted) evicted_ -= block->size;
    block->evicted = false;
  }
}

std::string PlannedRegion::check() const {
  Bytes live;
  Bytes pending;
  Bytes evicted;
  const std::vector<Block*> taken = this->taken();
  if (taken.size() != in_use_) return "planned blocks in use are counted wrong";
  driver::DevicePtr end = range().begin;
  for (const Block* const block : taken) {
    if (block->at < end) return "two planned blocks in use overlap";
    end = block->end();
    if (block->state == BlockState::kHole) pending += block->size;
    if (block->state != BlockState::kLive) continue;
    live += block->size;
    if (block->evicted) evicted += block->size;
    if (table_.starting(block->at) != block) return "the table misses a planned block";
    for (driver::DevicePtr at = block->at; at < block->end();
         at = backing_.border(at, block->end())) {
      if (backing_.around(at) == backing_.chunks().end()) return "a planned block is not mapped";
    }
  }
  if (live != live_) return "planned bytes are counted wrong";
  if (pending != pending_) return "pending planned bytes are counted wrong";
  if (evicted != evicted_) return "evicted planned bytes are counted wrong";
  return {};
}

}  // namespace spillway
