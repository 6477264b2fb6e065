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
  Replay& replay = *state_->replay;
  PlannedRegion* const planned = replay.region.load(std::memory_order_acquire);
  if (pool != PoolId::kShared) return allocate_anywhere(size, stream, tag, pool);
  if (planned != nullptr && stream.handle() == planned->key().stream) {
    const LightLock lock(planned->mutex);
    if (const Block* const block = planned->replay(size, tag)) {
      state_->books.hand_out(tag, block->size, size);
      return block->at;
    }
  }
  SPILLWAY_ASSIGN_OR_RETURN(const driver::DevicePtr at, allocate_anywhere(size, stream, tag, pool));
  if (replay.recorder.on()) {
    replay.recorder.allocated(stream.handle(), at, size, find(at).size);
  }
  return at;
}

bool Heap::State::free_in_step(driver::DevicePtr at) {
  Region* const region = regions.around(at);
  if (region == nullptr) return false;
  const bool planned = region->key().tier == Tier::kPlanned;
  if (!planned && !replay->recorder.on()) return false;
  const LightLock lock(region->mutex);
  Block* const block = region->starting(at);
  if (block == nullptr) return false;
  if (!planned) {
    replay->recorder.freed(
        at, block->ties != nullptr || block->held || block->evicted || block->shared);
    return false;
  }
  if (block->held) return false;
  books.take_back(block->tag, block->size, block->requested);
  static_cast<PlannedRegion*>(region)->give_back(block);
  return true;
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
  PlannedRegion* const region = replay->region.load(std::memory_order_relaxed);
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
  PlannedRegion* region = replay->region.load(std::memory_order_relaxed);
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
  replay->region.store(region, std::memory_order_release);
}

Bytes Heap::State::trim_for_room() {
  if (replay != nullptr) replay->stop();
  return trim();
}

}  // namespace spillway
