// SPDX-License-Identifier: Apache-2.0
// Steps that repeat: records their requests and replays them at the addresses of a replay plan.
#include "allocator/heap/step_replay.h"

#include "allocator/driver/span_log.h"
#include "allocator/heap/heap.h"

#include <algorithm>
#include <utility>

namespace spillway {

Result<driver::DevicePtr> Heap::allocate_in_step(Bytes size,
                                                 driver::Stream stream,
                                                 TagId tag,
                                                 PoolId pool) {
  if (ReplayRegion* const replay = state_->replay.region.load(std::memory_order_acquire)) {
    if (pool == PoolId::kShared && stream.handle() == replay->key().stream) {
      const driver::DevicePtr at = StepReplay(*state_).take(*replay, size, tag);
      if (at != driver::DevicePtr{}) return at;
    }
    const LightLock lock(replay->mutex);
    replay->write_accounting();
  }
  SPILLWAY_ASSIGN_OR_RETURN(const driver::DevicePtr at, allocate_anywhere(size, stream, tag, pool));
  StepRecorder& recorder = state_->replay.recorder;
  if (pool == PoolId::kShared && recorder.on()) {
    recorder.allocated(stream.handle(), at, size, find(at).size, tag);
  }
  return at;
}

driver::DevicePtr StepReplay::take(ReplayRegion& region, Bytes size, TagId tag) {
  std::optional<Bytes> missing;
  {
    const LightLock lock(region.mutex);
    // Checked first: after a request without an address in the replay plan, the next request
    // differs.
    missing = region.lacks_memory(size);
    if (!missing) return region.take(size, tag);
  }
  const Lock lock(heap_.mutex);
  const driver::CurrentDevice current(*heap_.device.api, heap_.device.context);
  const driver::SpanLog::Scope timed(
      heap_.device, region.stream(), driver::Span::Kind::kMapping, *missing);
  const SpareChunks::Scope scope(heap_.spares);
  if (*missing > heap_.accounting.room_to_target())
    heap_.trim_to_target(region.key().stream, *missing);
  const LightLock region_lock(region.mutex);
  const Status mapped = region.map_next(size);
  if (mapped.ok()) return region.take(size, tag);
  region.leave_out(size);
  return {};
}

bool StepReplay::release(driver::DevicePtr at) {
  ReplayRegion* const latest = replay_.region.load(std::memory_order_acquire);
  if (latest != nullptr && latest->range().contains(at)) {
    const LightLock lock(latest->mutex);
    return latest->release(at);
  }
  replay_.write_accounting();
  Region* const region = heap_.regions.around(at);
  if (region == nullptr) return false;
  if (region->key().tier == Tier::kReplay) {
    auto* const earlier = static_cast<ReplayRegion*>(region);
    const LightLock lock(earlier->mutex);
    return earlier->release(at);
  }
  if (!replay_.recorder.on()) return false;
  const LightLock lock(region->mutex);
  const Block* const block = region->allocated().starting(at);
  if (block == nullptr) return false;
  const bool offloadable = !block->pinned && !block->evicted && !block->shared;
  replay_.recorder.freed(at, block->ties != nullptr, offloadable);
  return false;
}

void PlacementAdvisor::end_step() {
  if (state_->large_tier.load(std::memory_order_relaxed) == Tier::kPersistent)
    state_->end_optimizer_phase();
  state_->large_tier = Tier::kLarge;
  state_->in_pass = false;
  if (state_->replay.on.load(std::memory_order_acquire)) StepReplay(*state_).end_step();
}

void StepReplay::end_step() {
  // Releases the reserved bytes beyond the target before the next step begins.
  if (heap_.target_was_set.load(std::memory_order_relaxed)) heap_.trim_beyond_target();
  {
    const Lock lock(heap_.mutex);
    const bool has_target = heap_.target_was_set.exchange(false, std::memory_order_relaxed);
    replay_.missing = {};
    if (!has_target) {
      heap_.accounting.set_target({});
      heap_.accounting.set_budget(heap_.job_budget);
    }
    // A plan would take memory from model state that it uses between passes.
    if (heap_.streams || (!has_target && !heap_.options.replay)) return rest();
    if (!follow_plan() || replay_.waits()) return;
  }
  std::optional<StepSequence> sequence = replay_.recorder.end_step();
  if (!sequence) return;
  const std::optional<Bytes> room = room_for(*sequence);
  // Planning takes long, so it holds no lock.
  const ReplayPlan plan =
      room ? replay_plan_within(std::move(*sequence), *room, heap_.addresses.granularity())
           : replay_plan_of(std::move(*sequence));
  const Lock lock(heap_.mutex);
  if (plan.size.zero() || !replay_.recorder.on()) return;
  // Within a budget no step would follow it to its end.
  const bool bounded = room && !heap_.accounting.budget().zero();
  if (bounded && plan.size > replay_.room) return replay_.lacks(plan.size - replay_.room);
  adopt(plan, room);
}

/// The bytes that a replay plan for this step may reserve under a target. The rest of the target is
/// for memory that is not free, nor will be when the plan's first step has begun, for blocks that
/// are double-buffered, and a small part for other streams and requests outside the plan.
std::optional<Bytes> StepReplay::room_for(const StepSequence& sequence) {
  const Lock lock(heap_.mutex);
  if (!heap_.accounting.has_target()) return std::nullopt;
  Bytes room = heap_.accounting.room_to_target(heap_.trimmable());
  Bytes remade;  // allocated twice until the last step's block is freed
  for (const StepRequest& request : sequence.requests) {
    if (request.end == BlockEnd::kNextStep) room += request.size;
    if (request.end == BlockEnd::kNone) remade += request.size;
  }
  replay_.double_buffered = remade.count();
  // Until then, blocks that the next step frees strand more memory.
  if (heap_.accounting.target() > heap_.beside_plans)
    room = std::max(room, heap_.accounting.target() - heap_.beside_plans);
  replay_.room = room;
  constexpr std::uint64_t kSlackShare = 64;
  Bytes slack{room.count() / kSlackShare};
  return saturating_sub(room, std::max(slack, remade));
}

/// Makes no replay plans until it is requested again.
void StepReplay::rest() {
  replay_.recorder.set_enabled(false);
  ReplayRegion* const latest = replay_.region.load(std::memory_order_relaxed);
  for (ReplayRegion* const region : heap_.replay_regions()) {
    const LightLock lock(region->mutex);
    region->trim();
    if (region == latest && region->idle())
      replay_.region.store(nullptr, std::memory_order_release);
  }
}

/// True if there is no replay plan to follow: requests are then recorded.
bool StepReplay::follow_plan() {
  if (replay_.recorder.on()) return true;
  ReplayRegion* const region = replay_.region.load(std::memory_order_relaxed);
  if (region == nullptr) {
    if (!replay_.stopped()) replay_.recorder.set_enabled(true);
    return false;
  }
  const LightLock lock(region->mutex);
  const bool same = region->end_step();
  replay_.differing = same ? 0 : replay_.differing + 1;
  // When memory is short, a replay plan that is not followed wastes memory.
  const int most = heap_.accounting.has_target() ? 1 : ReplayState::kMaxDiffering;
  const bool stays = region->has_plan() && replay_.differing < most;
  // A smaller target needs a plan of its own.
  const bool fits = !heap_.accounting.has_target() || heap_.accounting.target() >= replay_.target;
  if (stays && fits) return false;
  // Release the rest of an old replay plan first. Its last blocks may still be allocated.
  if (region->has_plan() || !region->in_use()) region->trim();
  if (region->has_plan() || replay_.stopped()) return false;  // the stream cannot be waited for
  replay_.differing = 0;
  replay_.recorder.set_enabled(true);
  return false;
}

/// A heap region for a new plan on this stream; null while blocks of the plans in all of them are
/// allocated, or if there can be no more heap regions.
ReplayRegion* StepReplay::idle_region(CUstream stream) {
  constexpr std::uint32_t kMostRegions = 4;
  for (std::uint32_t index = 0; index < kMostRegions; ++index) {
    Result<Region*> made = heap_.region_for({stream, PoolId::kShared, Tier::kReplay, index});
    if (!made.ok()) return nullptr;
    auto* const region = static_cast<ReplayRegion*>(made.value());
    const LightLock lock(region->mutex);
    if (!region->has_plan()) region->trim();
    if (region->idle()) return region;
  }
  return nullptr;
}

void StepReplay::adopt(const ReplayPlan& plan, std::optional<Bytes> room) {
  ReplayRegion* const region = idle_region(plan.sequence.stream);
  if (region == nullptr) return replay_.wait_longer();
  const SpareChunks::Scope scope(heap_.spares);
  std::optional<Bytes> at_once;
  if (room) {
    // Bytes that the room leaves for others stay free.
    const Bytes beside = saturating_sub(replay_.room, plan.size);
    const Bytes reserve = std::min(beside, replay_.room - *room);
    at_once = saturating_sub(heap_.accounting.room_to_target(), reserve);
  } else {
    heap_.trim_cached();  // memory that the replayed blocks used before
  }
  {
    const LightLock lock(region->mutex);
    if (!region->idle() || !region->adopt(plan, at_once).ok()) return replay_.stop();
  }
  replay_.has_room();
  replay_.recorder.set_enabled(false);
  replay_.target = heap_.accounting.target();
  replay_.region.store(region, std::memory_order_release);
}

}  // namespace spillway
