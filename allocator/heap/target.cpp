// SPDX-License-Identifier: Apache-2.0
// A target: the reserved bytes up to which the heap grows rather than wait for copies.
#include "allocator/heap/heap.h"
#include "allocator/heap/heap_state.h"
#include "allocator/heap/region_hits.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

/// Steps under a new target fragment memory differently from earlier ones. After this many steps
/// the layout is stable.
constexpr int kMaxTrims = 4;
/// Beyond this many values of the target, memory is not released.
constexpr std::size_t kMaxTargets = 256;
/// With fewer pages, separate chunks would cost more than they save.
constexpr std::uint64_t kFewestPagesToPart = 512;
/// With fewer pages, fragmentation dominates the reserved bytes.
constexpr std::uint64_t kFewestPages = 16;

}  // namespace

void PlacementAdvisor::set_target(Bytes target) {
  state_->accounting.set_target(target);
  state_->large_tier = Tier::kLarge;
  state_->in_pass = !target.zero();
  if (target.zero()) return;
  state_->target_was_set = true;
  if (!state_->replay.on.load(std::memory_order_relaxed)) state_->replay.on = true;
  state_->trim_beyond_target();
  state_->see_stranded();
  state_->accounting.begin_target_peak();
}

void HeapLimits::set_budget(Bytes budget) {
  state_->accounting.set_budget(budget);
  if (budget.zero() || HeapView(*state_).reserved() <= budget) return;
  const Lock lock(state_->mutex);
  state_->trim_cached();
}

void HeapLimits::hold_budget(Bytes budget) {
  {
    const Lock lock(state_->mutex);
    state_->job_budget = budget;
  }
  set_budget(budget);
}

Bytes HeapLimits::smallest_budget() const {
  return state_->smallest_budget();
}

Bytes HeapLimits::budget() const {
  return state_->accounting.budget();
}

bool HeapLimits::would_exceed_budget(Bytes size) const {
  // No device has this much memory, and rounding a size near 2^64 would overflow.
  if (size > state_->addresses.range_size()) return false;
  return state_->accounting.passes_budget(size.rounded_up(state_->addresses.granularity()));
}

void HeapLimits::exceed_budget(Bytes size) {
  ++state_->over_budget;
  state_->accounting.exceed_budget(size.rounded_up(state_->addresses.granularity()));
}

Bytes PlacementAdvisor::most_reserved() const {
  return state_->accounting.target_peak();
}

std::optional<Bytes> PlacementAdvisor::stranded_at_target() const {
  if (!state_->has_many_pages()) return std::nullopt;
  return Bytes{state_->stranded.load(std::memory_order_relaxed)};
}

Bytes PlacementAdvisor::double_buffered() const {
  return Bytes{state_->replay.double_buffered.load(std::memory_order_relaxed)};
}

void PlacementAdvisor::replay_without_streamed(bool without) {
  state_->without_streamed = without;
}

void PlacementAdvisor::set_streaming(bool streams) {
  if (state_->streams.exchange(streams) == streams) return;
  const Lock lock(state_->mutex);
  state_->kept = {};  // streamed blocks do not count
}

bool PlacementAdvisor::streaming() const {
  return state_->streams.load(std::memory_order_relaxed);
}

void PlacementAdvisor::begin_optimizer_phase() {
  state_->in_pass = false;
  const Bytes target = state_->accounting.target();
  const bool many = target >= Bytes{state_->addresses.granularity().count() * kFewestPagesToPart};
  if (state_->optimizer_phase_adds_persistent && many && !state_->streams)
    state_->large_tier = Tier::kPersistent;
}

std::optional<Bytes> PlacementAdvisor::peak_reserved_following_plan() const {
  if (!state_->accounting.has_target()) return std::nullopt;
  ReplayRegion* const region = state_->replay.region.load(std::memory_order_acquire);
  if (region == nullptr) return Bytes{};
  {
    const LightLock lock(region->mutex);
    if (!region->has_plan() || region->differs_much()) return Bytes{};
  }
  return state_->accounting.target_peak();
}

Bytes PlacementAdvisor::missing_for_plan() const {
  const Lock lock(state_->mutex);
  return state_->replay.missing;
}

bool PlacementAdvisor::maps_plan() const {
  ReplayRegion* const region = state_->replay.region.load(std::memory_order_acquire);
  if (region == nullptr) return false;
  const LightLock lock(region->mutex);
  return region->has_plan() && !region->mapped();
}

void HeapState::trim_beyond_target() {
  if (!accounting.passes_target(Bytes{})) return;
  const Lock lock(mutex);
  const Bytes target = accounting.target();
  if (trims.size() >= kMaxTargets && !trims.contains(target)) return;
  if (trims[target]++ >= kMaxTrims) return;
  // The next step would create again what is released below the target.
  { const SpareChunks::Scope scope(spares); }  // its end releases what exceeds the target
  const auto excess = [&] {
    return saturating_sub(HeapView(*this).reserved(), target);
  };
  for (Region* const region : trimmable_regions()) {
    const Bytes more = excess();
    if (more.zero()) return;
    const RegionLock region_lock(*region);
    region->trim_some(more, Waits::kOfHost);
  }
  // Copies still use the rest: the host waits for them.
  if (!excess().zero()) spares.trim();
  for (Region* const region : trimmable_regions())
    if (!excess().zero()) trim(*region);
}

void HeapState::end_optimizer_phase() {
  const Lock lock(mutex);
  Bytes allocated;
  for (const auto& region : regions.all()) {
    if (region->key().tier != Tier::kPersistent) continue;
    const RegionView region_lock(*region);
    for (const Block* block = region->first(); block != nullptr; block = block->after)
      if (block->state == BlockState::kLive) allocated += block->size;
  }
  if (!allocated.zero())
    optimizer_phase_adds_persistent = allocated > std::exchange(kept, allocated);
}

/// While a replay plan is followed, there is no new information.
void HeapState::see_stranded() {
  const Lock lock(mutex);
  if (ReplayRegion* const region = replay.region.load(std::memory_order_relaxed)) {
    const LightLock region_lock(region->mutex);
    if (region->has_plan() && !replay.recorder.on()) return;
  }
  HeapStats stats;
  accounting.read(stats);
  for (const auto& region : regions.all()) {
    if (region->key().tier == Tier::kReplay) continue;
    const RegionView region_lock(*region);
    region->read(stats);
  }
  stranded = stats.stranded.count();
  beside_plans = stats.allocated + stats.stranded;
}

Bytes HeapState::smallest_budget() const {
  return Bytes{addresses.granularity().count() * kFewestPages};
}

bool HeapState::has_many_pages() const {
  return accounting.target() >= smallest_budget();
}

Bytes HeapState::trim_some_to_target(CUstream stream, Bytes size, std::optional<Tier> of) const {
  Bytes lacks = saturating_sub(size, accounting.room_to_target());
  std::vector<Region*> found = trimmable_regions();
  std::erase_if(found, [&](const Region* region) { return of && region->key().tier != *of; });
  for (const Waits waits : {Waits::kNone, Waits::kOfStream}) {
    if (of && waits != Waits::kNone) continue;
    for (Region* const region : found) {
      if (lacks.zero() || region->key().stream != stream) continue;
      const RegionLock lock(*region);
      lacks = saturating_sub(lacks, region->trim_some(lacks, waits));
    }
  }
  // Of other streams, and what cannot move.
  for (Region* const region : found) {
    if (lacks.zero()) break;
    const RegionLock lock(*region);
    lacks = saturating_sub(lacks, region->trim_some(lacks, Waits::kOfHost));
  }
  return lacks;
}

void HeapState::trim_to_target(CUstream stream, Bytes size) {
  if (!trim_some_to_target(stream, size).zero()) trim_cached();
  const bool is_short = size > accounting.room_to_target();
  for (ReplayRegion* const region : replay_regions()) {
    const LightLock lock(region->mutex);
    // Blocks of a dropped replay plan may have outlived it, and been freed since. A step that
    // differs much from a plan has no use for it; for one that differs little, callers make room
    // within a budget.
    const bool ends = region->differs() || (is_short && region->differs_much());
    if (ends || !region->has_plan()) region->trim();
  }
}

std::optional<Result<Block*>> HeapState::take_unfenced(
    Region& region, Bytes size, Bytes requested, TagId tag, bool may_grow) const {
  if (Block* const block = region.any_settled(size))
    return region.take_settled(block, size, requested, tag);
  // If no free block is large enough, the heap grows anyway, next to free memory.
  if (!may_grow || region.any_fitting(size) == nullptr) return std::nullopt;
  if (size.rounded_up(addresses.granularity()) > accounting.room_to_target()) return std::nullopt;
  Result<Block*> fresh = region.fresh(size, requested, tag);
  if (!fresh.ok()) return std::nullopt;
  return fresh;
}

}  // namespace spillway
