// SPDX-License-Identifier: Apache-2.0
// Steps that repeat: from requests that were written down to the same addresses again.
#include "allocator/heap/heap.h"
#include "allocator/heap/heap_state.h"

#include <utility>

namespace spillway {

Result<driver::DevicePtr> Heap::allocate_in_step(Bytes size,
                                                 driver::Stream stream,
                                                 TagId tag,
                                                 PoolId pool) {
  if (PlannedRegion* const planned = state_->planned.load(std::memory_order_acquire)) {
    const LightLock lock(planned->mutex);
    if (pool == PoolId::kShared && stream.handle() == planned->key().stream) {
      const driver::DevicePtr at = planned->take(size, tag);
      if (at != driver::DevicePtr{}) return at;
    }
    planned->write_books();
  }
  SPILLWAY_ASSIGN_OR_RETURN(const driver::DevicePtr at, allocate_anywhere(size, stream, tag, pool));
  StepRecorder& recorder = state_->replay->recorder;
  if (pool == PoolId::kShared && recorder.on()) {
    recorder.allocated(stream.handle(), at, size, find(at).size, tag);
  }
  return at;
}

bool Heap::State::free_in_step(driver::DevicePtr at) {
  PlannedRegion* const latest = planned.load(std::memory_order_acquire);
  if (latest != nullptr && latest->range().contains(at)) {
    const LightLock lock(latest->mutex);
    return latest->give_back(at);
  }
  write_books();
  Region* const region = regions.around(at);
  if (region == nullptr) return false;
  if (region->key().tier == Tier::kPlanned) {
    auto* const earlier = static_cast<PlannedRegion*>(region);
    const LightLock lock(earlier->mutex);
    return earlier->give_back(at);
  }
  if (!replay->recorder.on()) return false;
  const LightLock lock(region->mutex);
  const Block* const block = region->starting(at);
  if (block == nullptr) return false;
  replay->recorder.freed(at,
                         block->ties != nullptr || block->held || block->evicted || block->shared);
  return false;
}

void Heap::end_step() {
  if (state_->replay != nullptr) state_->end_step();
}

void Heap::State::end_step() {
  {
    const Lock lock(mutex);
    if (!follow_plan()) return;
  }
  std::optional<StepSequence> sequence = replay->recorder.end_step();
  if (!sequence) return;
  // Takes long, so that nobody waits for it.
  StepPlan plan = plan_of(std::move(*sequence));
  const Lock lock(mutex);
  if (!plan.size.zero() && replay->recorder.on()) adopt(std::move(plan));
}

/// True where there is no plan to follow: then requests are written down.
bool Heap::State::follow_plan() {
  PlannedRegion* const region = planned.load(std::memory_order_relaxed);
  if (region == nullptr || replay->recorder.on()) return replay->recorder.on();
  const LightLock lock(region->mutex);
  replay->differing = region->end_step() ? 0 : replay->differing + 1;
  if (region->planned() && replay->differing < Replay::kMostDiffering) return false;
  // What is left of an old plan goes first. Its last blocks may live still.
  if (region->planned() || !region->in_use()) region->trim();
  if (!region->idle() || replay->stopped) return false;
  replay->differing = 0;
  replay->recorder.turn(true);
  return false;
}

void Heap::State::adopt(StepPlan plan) {
  PlannedRegion* region = planned.load(std::memory_order_relaxed);
  const RegionKey key{plan.sequence.stream, PoolId::kShared, Tier::kPlanned};
  if (region == nullptr || region->key() != key) {
    Result<Region*> made = region_for(key);
    if (!made.ok()) return replay->stop();
    region = static_cast<PlannedRegion*>(made.value());
  }
  trim();  // what the planned blocks were in until now
  {
    const LightLock lock(region->mutex);
    if (!region->idle() || !region->adopt(std::move(plan)).ok()) return replay->stop();
  }
  replay->recorder.turn(false);
  planned.store(region, std::memory_order_release);
}

Bytes Heap::State::trim_for_room() {
  if (replay != nullptr) replay->stop();
  return trim();
}

}  // namespace spillway
