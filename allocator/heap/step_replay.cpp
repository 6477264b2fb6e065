// SPDX-License-Identifier: Apache-2.0
// Steps that repeat: records their requests and replays them at the addresses of a replay plan.
#include "allocator/heap/heap.h"
#include "allocator/heap/heap_state.h"

#include <algorithm>
#include <utility>

namespace spillway {

Result<driver::DevicePtr> Heap::allocate_in_step(Bytes size,
                                                 driver::Stream stream,
                                                 TagId tag,
                                                 PoolId pool) {
  if (ReplayRegion* const replay = state_->replay_region.load(std::memory_order_acquire)) {
    if (pool == PoolId::kShared && stream.handle() == replay->key().stream) {
      const driver::DevicePtr at = state_->take_replayed(*replay, size, tag);
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

driver::DevicePtr HeapState::take_replayed(ReplayRegion& region, Bytes size, TagId tag) {
  std::optional<Bytes> missing;
  {
    const LightLock lock(region.mutex);
    // Checked first: after a request without an address in the replay plan, the next request
    // differs.
    missing = region.lacks_memory(size);
    if (!missing) return region.take(size, tag);
  }
  const Lock lock(mutex);
  const SpareChunks::Scope scope(spares);
  if (*missing > accounting.room_to_target()) trim_to_target(*missing);
  const LightLock region_lock(region.mutex);
  Status mapped = region.map_next(size);
  if (!mapped.ok()) region.fall_back();
  return region.take(size, tag);
}

bool HeapState::free_in_step(driver::DevicePtr at) {
  ReplayRegion* const latest = replay_region.load(std::memory_order_acquire);
  if (latest != nullptr && latest->range().contains(at)) {
    const LightLock lock(latest->mutex);
    return latest->release(at);
  }
  write_accounting();
  Region* const region = regions.around(at);
  if (region == nullptr) return false;
  if (region->key().tier == Tier::kReplay) {
    auto* const earlier = static_cast<ReplayRegion*>(region);
    const LightLock lock(earlier->mutex);
    return earlier->release(at);
  }
  if (!replay.recorder.on()) return false;
  const LightLock lock(region->mutex);
  const Block* const block = region->starting(at);
  if (block == nullptr) return false;
  const bool offloadable = !block->pinned && !block->evicted && !block->shared;
  replay.recorder.freed(at, block->ties != nullptr, offloadable);
  return false;
}

void PlacementAdvisor::end_step() {
  if (state_->large_tier.load(std::memory_order_relaxed) == Tier::kPersistent)
    state_->end_optimizer_phase();
  state_->large_tier = Tier::kLarge;
  if (state_->replays.load(std::memory_order_acquire)) state_->end_step();
}

void HeapState::end_step() {
  // Releases the reserved bytes beyond the target before the next step begins.
  if (target_was_set.load(std::memory_order_relaxed)) trim_beyond_target();
  {
    const Lock lock(mutex);
    const bool has_target = target_was_set.exchange(false, std::memory_order_relaxed);
    replay.missing = {};
    if (!has_target) {
      accounting.set_target({});
      accounting.set_budget(job_budget);
    }
    if (!has_target && !options.replay) return rest();
    if (!follow_plan() || replay.waits()) return;
  }
  std::optional<StepSequence> sequence = replay.recorder.end_step();
  if (!sequence) return;
  const std::optional<Bytes> room = room_for(*sequence);
  // Planning takes long, so it holds no lock.
  const ReplayPlan plan =
      room ? replay_plan_within(std::move(*sequence), *room, addresses.granularity())
           : replay_plan_of(std::move(*sequence));
  const Lock lock(mutex);
  if (plan.size.zero() || !replay.recorder.on()) return;
  // Within a budget no step would follow it to its end.
  const bool bounded = room && !accounting.budget().zero();
  if (bounded && plan.size > replay.room) return replay.lacks(plan.size - replay.room);
  replay.has_room();
  adopt(plan, room);
}

/// The bytes that a replay plan for this step may reserve under a target. The rest of the target is
/// for memory that is not free, nor will be when the plan's first step has begun, for blocks that
/// are double-buffered, and a small part for other streams and requests outside the plan.
std::optional<Bytes> HeapState::room_for(const StepSequence& sequence) {
  const Lock lock(mutex);
  if (!accounting.has_target()) return std::nullopt;
  Bytes room = accounting.room_to_target(trimmable());
  Bytes remade;  // allocated twice until the last step's block is freed
  for (const StepRequest& request : sequence.requests) {
    if (request.end == BlockEnd::kNextStep) room += request.size;
    if (request.end == BlockEnd::kNone) remade += request.size;
  }
  double_buffered = remade.count();
  // Until then, blocks that the next step frees strand more memory.
  if (accounting.target() > beside_plans) room = std::max(room, accounting.target() - beside_plans);
  replay.room = room;
  constexpr std::uint64_t kSlackShare = 64;
  Bytes slack{room.count() / kSlackShare};
  return saturating_sub(room, std::max(slack, remade));
}

/// Makes no replay plans until it is requested again.
void HeapState::rest() {
  replay.recorder.set_enabled(false);
  ReplayRegion* const region = replay_region.load(std::memory_order_relaxed);
  if (region == nullptr) return;
  const LightLock lock(region->mutex);
  region->trim();
  if (region->idle()) replay_region.store(nullptr, std::memory_order_release);
}

/// True if there is no replay plan to follow: requests are then recorded.
bool HeapState::follow_plan() {
  if (replay.recorder.on()) return true;
  ReplayRegion* const region = replay_region.load(std::memory_order_relaxed);
  if (region == nullptr) {
    if (!replay.stopped()) replay.recorder.set_enabled(true);
    return false;
  }
  const LightLock lock(region->mutex);
  const bool same = region->end_step();
  replay.differing = same ? 0 : replay.differing + 1;
  // When memory is short, a replay plan that is not followed wastes memory.
  const int most = accounting.has_target() ? 1 : Replay::kMaxDiffering;
  const bool stays = region->has_plan() && replay.differing < most;
  // A smaller target needs a plan of its own.
  const bool fits = !accounting.has_target() || accounting.target() >= replay.target;
  if (stays && fits) return false;
  // Release the rest of an old replay plan first. Its last blocks may still be allocated.
  if (region->has_plan() || !region->in_use()) region->trim();
  if (!region->idle() || replay.stopped()) return false;
  replay.differing = 0;
  replay.recorder.set_enabled(true);
  return false;
}

void HeapState::adopt(const ReplayPlan& plan, std::optional<Bytes> room) {
  ReplayRegion* region = replay_region.load(std::memory_order_relaxed);
  const RegionKey key{plan.sequence.stream, PoolId::kShared, Tier::kReplay};
  if (region == nullptr || region->key() != key) {
    Result<Region*> made = region_for(key);
    if (!made.ok()) return replay.stop();
    region = static_cast<ReplayRegion*>(made.value());
  }
  const SpareChunks::Scope scope(spares);
  std::optional<Bytes> at_once;
  if (room) {
    // Bytes that the room leaves for others stay free.
    const Bytes beside = saturating_sub(replay.room, plan.size);
    const Bytes reserve = std::min(beside, replay.room - *room);
    at_once = saturating_sub(accounting.room_to_target(), reserve);
  } else {
    trim_cached();  // memory that the replayed blocks used before
  }
  {
    const LightLock lock(region->mutex);
    if (!region->idle() || !region->adopt(plan, at_once).ok()) return replay.stop();
  }
  replay.recorder.set_enabled(false);
  replay.target = accounting.target();
  replay_region.store(region, std::memory_order_release);
}

Bytes HeapState::trim_for_room() {
  if (replays.load(std::memory_order_relaxed)) replay.ran_out(accounting.has_target());
  return trim();
}

}  // namespace spillway
