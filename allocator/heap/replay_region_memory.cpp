// SPDX-License-Identifier: Apache-2.0
// The memory of a replay plan: where its blocks are, and what is mapped for them.
#include "allocator/heap/replay_region.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace spillway {

Status ReplayRegion::adopt(const ReplayPlan& plan, std::optional<Bytes> room) {
  SPILLWAY_CHECK(idle());
  page_ = plan.page.zero() ? backing_.granularity() : plan.page;
  const Bytes all = plan.size.rounded_up(page_);
  const Bytes first = std::min(all, room.value_or(all)).rounded_down(page_);
  place_requests(plan);
  Status mapped = first.zero() ? Status() : map({range().begin, first}, &cuts_);
  if (!room && !mapped.ok()) {
    requests_.clear();
    return mapped;
  }

  // No call below may fail.
  set_cursor_events(plan.sequence);
  has_plan_ = true;
  plain_ = plan.plain;
  mapped_ = !room;  // and not those of another replay plan
  mapped_ = all_ready();
  begin_step();
  if (plain_ && mapped_) cursor_.begin();
  return {};
}

void ReplayRegion::place_requests(const ReplayPlan& plan) {
  const std::vector<StepRequest>& steps = plan.sequence.requests;
  requests_ = std::vector<Request>(steps.size());
  total_ = {};
  parts_.clear();
  cut_evenly(plan.size.rounded_up(page_));
  driver::DevicePtr view = range().begin + plan.size.rounded_up(page_);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    Request& request = requests_[i];
    request.requested = steps[i].requested;
    request.block.size = steps[i].size;
    total_ += steps[i].size;
    request.part = static_cast<std::uint32_t>(parts_.size());
    if (plan.offsets[i]) {
      request.block.at = range().begin + *plan.offsets[i];
      parts_.push_back(request.block.range());
    } else if (!plan.pages[i].empty() &&
               plan.pages[i].size() * page_.count() <= distance(view, range().end()).count()) {
      request.viewed = true;
      request.block.at = view;
      add_parts(plan.pages[i]);
      view = view + Bytes{plan.pages[i].size() * page_.count()};
    }
    request.part_end = static_cast<std::uint32_t>(parts_.size());
    request.placed = request.part != request.part_end;
    if (request.placed) request.block.state = BlockState::kFree;
  }
  std::sort(cuts_.begin(), cuts_.end());
  cuts_.erase(std::unique(cuts_.begin(), cuts_.end()), cuts_.end());
}

/// Each chunk costs calls to the driver, but a single block that outlives the plan strands the rest
/// of its chunk.
void ReplayRegion::cut_evenly(Bytes size) {
  constexpr std::uint64_t kShare = 256;
  constexpr Bytes kMost{std::uint64_t{64} << 20U};
  const Bytes share = std::min(Bytes{size.count() / kShare}, kMost).rounded_down(page_);
  const Bytes most = std::max(page_, share);
  cuts_.clear();
  for (Bytes offset = most; offset < size; offset += most)
    cuts_.push_back(range().begin + offset);
}

/// A part for each run of consecutive pages.
void ReplayRegion::add_parts(const std::vector<std::uint32_t>& pages) {
  for (auto page = pages.begin(); page != pages.end();) {
    Range run{range().begin + Bytes{*page * page_.count()}, page_};
    for (++page; page != pages.end() && *page == *std::prev(page) + 1; ++page)
      run.size += page_;
    parts_.push_back(run);
    cuts_.push_back(run.begin);
    cuts_.push_back(run.end());
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
  const std::optional<std::size_t> index = planned(requested);
  if (!index || ready(requests_[*index])) return std::nullopt;
  Bytes bytes;
  const Request& next = requests_[*index];
  for (const Range& range : unmapped(next))
    bytes += range.size;
  return bytes;
}

Status ReplayRegion::map_next(Bytes requested) {
  if (!lacks_memory(requested)) return {};
  const Request& next = requests_[*planned(requested)];
  for (const Range& range : unmapped(next)) {
    if (backing_.is_stuck(range.begin)) {
      return SPILLWAY_ERROR(Code::kOutOfDeviceMemory,
                            "the memory of a replayed allocation cannot be mapped");
    }
    SPILLWAY_RETURN_IF_ERROR(map(range, &cuts_));
  }
  if (!next.viewed || backing_.is_view(next.block.at)) return {};
  return backing_.view(next.block.at, parts_of(next));
}

/// Whether trim would release anything, after a wait.
bool ReplayRegion::has_free_memory() const {
  const auto& chunks = backing_.chunks();
  return !pending_.zero() || chunks.empty() ||
         std::any_of(chunks.begin(), chunks.end(), [&](const auto& each) SPILLWAY_REQUIRES(mutex) {
           return !in_use({each.first, each.second.size});
         });
}

/// Unmaps the views of free requests. Returns the memory of those that the driver has not unmapped.
std::vector<Range> ReplayRegion::end_views() {
  std::vector<Range> kept;
  for (const Request& request : requests_) {
    if (!request.viewed || request.block.state != BlockState::kFree) continue;
    if (!backing_.is_view(request.block.at) || backing_.end_view(request.block.at)) continue;
    for (const Range& part : parts_of(request))
      kept.push_back(part);
  }
  return kept;
}

Bytes ReplayRegion::trim() {
  if (idle()) return {};
  if (!has_plan_ && !has_free_memory()) return {};
  open();  // before the wait: blocks taken meanwhile without the lock would not be waited for
  if (!wait_for_stream_sync().ok()) return {};
  has_plan_ = false;
  for (Block* const block : blocks_in_use()) {
    if (block->state == BlockState::kHole && settle_sync(block).ok()) release_addresses(block);
  }
  const std::vector<Range> kept = end_views();
  std::vector<Range> empty;
  for (const auto& [at, chunk] : backing_.chunks()) {
    const Range range{at, chunk.size};
    const bool seen = std::any_of(
        kept.begin(), kept.end(), [&](const Range& part) { return part.contains(range.begin); });
    if (!seen && !in_use(range)) empty.push_back(range);
  }
  Bytes gone;
  for (const Range& chunk : empty) {
    if (backing_.unmap(chunk)) gone += chunk.size;
  }
  if (taken_.empty() && backing_.chunks().empty()) requests_.clear();
  return gone;
}

}  // namespace spillway
