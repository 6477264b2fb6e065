// SPDX-License-Identifier: Apache-2.0
#include "allocator/step/budget_policy.h"

#include <utility>

namespace spillway {
namespace {

/// The device's memory in the step that is to end, which has reserved at most `reserved` bytes.
StepMemory read_memory(DeviceRuntime& device, Bytes budget, Bytes reserved) {
  PlacementAdvisor placement = device.heap().placement();
  StepMemory memory{reserved, device.heap().limits().smallest_budget()};
  if (const auto peak = placement.peak_reserved_following_plan()) {
    memory.host_stalled = peak->zero() || placement.maps_plan();
    // Storages offloaded for lack of room would otherwise have been reserved.
    const Bytes reclaimed = device.model_state().take_reclaimed();
    memory.reserved_following_plan = reclaimed.zero() ? *peak : budget + reclaimed;
  }
  memory.missing = placement.missing_for_plan();
  return memory;
}

}  // namespace

BudgetPolicy::OnDevice& BudgetPolicy::on_device(DeviceRuntime& device) {
  const DeviceId id = device.device().id;
  const auto found = devices_.find(id);
  if (found != devices_.end()) return found->second;
  OnDevice made{&device, BudgetChooser(device.budget().bytes_of(budget_), budget_.slowdown)};
  if (!device.budget().of_job().zero() && budget_.slowdown == 0) made.chooser.keep_unplanned();
  return devices_.emplace(id, std::move(made)).first->second;
}

BudgetChooser& BudgetPolicy::chooser(DeviceRuntime& device) {
  return on_device(device).chooser;
}

BudgetChooser* BudgetPolicy::on(DeviceId device) {
  const auto found = devices_.find(device);
  return found == devices_.end() ? nullptr : &found->second.chooser;
}

const BudgetChooser* BudgetPolicy::on(DeviceId device) const {
  const auto found = devices_.find(device);
  return found == devices_.end() ? nullptr : &found->second.chooser;
}

std::uint64_t BudgetPolicy::sum(std::uint64_t BudgetChooser::Counts::*count) const {
  std::uint64_t sum = 0;
  for (const auto& [id, on] : devices_)
    sum += on.chooser.counts().*count;
  return sum;
}

std::uint64_t BudgetPolicy::mismatches() const {
  return sum(&BudgetChooser::Counts::mismatches);
}

void BudgetPolicy::foresee(OnDevice& on) {
  Heap& heap = on.device->heap();
  if (heap.placement().peak_reserved_following_plan()) on.chooser.set_free_at_once();
  on.chooser.set_model_state(on.device->model_state().terms());
  on.device->model_state().set_share(std::nullopt);
  const auto stranded = heap.placement().stranded_at_target();
  const Bytes allocated = on.device->curve().allocated_at_begin();
  on.chooser.set_prediction(
      stranded ? PredictedReserved({*stranded, allocated, heap.view().granularity()})
               : PredictedReserved());
}

std::vector<PlanRequest> BudgetPolicy::plans_for(const OfferedStorage& storage) {
  OnDevice& on = on_device(storage.device);
  // Before its first plan, so that steps recorded by another run are planned alike.
  if (on.chooser.storages_seen() == 0) foresee(on);
  return on.chooser.requests(
      storage.size, on.device->curve().allocated_at_begin(), storage.recomputable);
}

void BudgetPolicy::adopt(DeviceId device, std::vector<PlanRequest>&& done) {
  if (BudgetChooser* const chooser = on(device)) chooser->adopt(std::move(done));
}

PolicyDecision BudgetPolicy::on_saved(const OfferedStorage& storage, TagStepStats& step) {
  BudgetChooser& chooser = this->chooser(storage.device);
  PolicyDecision decision;
  decision.index = chooser.storages_seen();
  decision.watched = true;
  const Action action = chooser.choose(
      storage.size, storage.device.curve().allocated_at_begin(), storage.recomputable);
  if (const auto beside = chooser.beside())
    storage.device.model_state().set_share(*beside, *beside >= chooser.model_state().bytes);
  if (!storage.device.model_state().plan_known()) {
    if (const auto* const leaves = chooser.model_state_leaves())
      storage.device.model_state().set_plan(*leaves);
  }
  decision.action.offload = action == Action::kOffload;
  decision.action.recompute = action == Action::kRecompute;
  // It is offloaded after all if the budget turns out to have no room for it.
  decision.action.waits =
      action == Action::kKeep && !storage.device.heap().limits().budget().zero();
  if (!decision.action.recompute) step.offloadable += storage.size;
  decision.action.known = chooser.matches_known();
  decision.action.recording = chooser.needs_times();
  return decision;
}

void BudgetPolicy::on_event(StorageEvent event, DeviceId device, std::size_t) {
  // The others need no report: the curve shows what was not offloaded.
  if (event == StorageEvent::kNoHostMemory) devices_.at(device).chooser.not_offloaded();
}

std::vector<std::size_t> BudgetPolicy::prefetch_after(DeviceId device, std::size_t index) const {
  const BudgetChooser* const chooser = on(device);
  return chooser == nullptr ? std::vector<std::size_t>() : chooser->due_with(index);
}

std::vector<BudgetMiss> BudgetPolicy::on_backward_end() {
  std::vector<BudgetMiss> misses;
  for (auto& [id, on] : devices_) {
    if (on.chooser.storages_seen() == 0) continue;
    on.device->step_recording().end();
    AllocationCurve& curve = on.device->curve();
    curve.begin_optimizer_phase();
    on.device->heap().placement().begin_optimizer_phase();
    on.reserved = on.device->heap().placement().most_reserved();
    on.pressed = on.device->take_pressed();
    on.chooser.set_memory({on.reserved, on.device->heap().limits().smallest_budget()});
    if (!on.chooser.exceeds(curve.peak())) continue;
    if (const auto missing = on.chooser.shortage(curve.so_far()))
      misses.push_back(miss(on, *missing));
  }
  return misses;
}

std::vector<BudgetMiss> BudgetPolicy::on_end(bool had_backward, bool optimized) {
  std::vector<BudgetMiss> misses;
  ended_.clear();
  for (auto& [id, on] : devices_) {
    if (on.chooser.storages_seen() == 0) continue;
    if (had_backward) {
      if (auto missed = end(on, optimized)) misses.push_back(*std::move(missed));
      ended_.push_back(id);
    } else {
      on.device->step_recording().stop();
      on.device->curve().end(optimized);
      on.chooser.abandon_step();
    }
  }
  return misses;
}

std::optional<BudgetMiss> BudgetPolicy::end(OnDevice& on, bool optimized) {
  on.device->step_recording().end();
  const StepCurve curve = on.device->curve().end(optimized);
  // Without an optimizer step, events after the backward pass do not belong to the step.
  const Bytes reserved = optimized ? on.device->heap().placement().most_reserved() : on.reserved;
  StepMemory memory = read_memory(*on.device, on.chooser.budget(), reserved);
  memory.pressed = std::exchange(on.pressed, false);
  on.chooser.set_memory(memory);
  const auto excess = on.chooser.excess(curve);
  if (const auto missing = on.chooser.end_step(curve, optimized)) return miss(on, *missing);
  if (!excess) return std::nullopt;
  BudgetMiss missed = miss(on, *excess);
  missed.adapts = missed.warns = true;
  return missed;
}

BudgetMiss BudgetPolicy::miss(const OnDevice& on, const BudgetShortage& shortage) {
  const DeviceBudget::Step step = on.device->budget().step();
  BudgetMiss miss{
      on.device->device().id, on.chooser.budget(), shortage, step.number, step.first_saved_shape};
  miss.first = on.chooser.counts().optimized_steps == 0;
  return miss;
}

}  // namespace spillway
