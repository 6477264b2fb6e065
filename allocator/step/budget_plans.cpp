// SPDX-License-Identifier: Apache-2.0
#include "allocator/step/budget_plans.h"

#include "allocator/device/fork.h"

#include <utility>

namespace spillway {

template <typename Use>
void BudgetPlans::with(TagId tag, DeviceId device, Use use) const {
  if (in_forked_child()) return;
  const Lock lock(session_.mutex_);
  const BudgetPolicy* const budgets = session_.budgets_locked(tag);
  const BudgetChooser* const chooser = budgets != nullptr ? budgets->on(device) : nullptr;
  if (chooser != nullptr) use(*chooser);
}

template <typename Use>
void BudgetPlans::with_each(DeviceId device, Use use) {
  if (in_forked_child()) return;
  const Lock lock(session_.mutex_);
  for (const TagId id : session_.budgeted_) {
    ++session_.tags_visited_;
    BudgetChooser* const chooser = session_.tags_.at(id).budgets->on(device);
    if (chooser != nullptr) use(*chooser);
  }
}

std::optional<PlannedStep> BudgetPlans::planned_step(TagId tag, DeviceId device) const {
  std::optional<PlannedStep> step;
  with(tag, device, [&](const BudgetChooser& chooser) { step = chooser.planned_last(); });
  return step;
}

Bytes BudgetPlans::reserved_following_plans(TagId tag, DeviceId device) const {
  Bytes bytes;
  with(tag, device, [&](const BudgetChooser& chooser) {
    bytes = chooser.shapes().predicted_reserved();
  });
  return bytes;
}

std::vector<KnownStep> BudgetPlans::known_steps(TagId tag, DeviceId device) const {
  std::vector<KnownStep> steps;
  with(tag, device, [&](const BudgetChooser& chooser) { steps = chooser.shapes().known(); });
  return steps;
}

std::uint64_t BudgetPlans::sum(TagId tag, std::uint64_t BudgetChooser::Counts::*count) const {
  if (in_forked_child()) return 0;
  const Lock lock(session_.mutex_);
  const BudgetPolicy* const budgets = session_.budgets_locked(tag);
  return budgets != nullptr ? budgets->sum(count) : 0;
}

std::uint64_t BudgetPlans::records(TagId tag) const {
  return sum(tag, &BudgetChooser::Counts::records);
}

bool BudgetPlans::awaits_times(DeviceId device) {
  bool awaits = false;
  with_each(device, [&](BudgetChooser& chooser) { awaits = awaits || chooser.awaits_times(); });
  return awaits;
}

void BudgetPlans::time(DeviceId device, const StepTimes& times, std::size_t steps_ago) {
  with_each(device, [&](BudgetChooser& chooser) { chooser.time(times, steps_ago); });
}

void BudgetPlans::add_step_duration(DeviceId device, double seconds, std::size_t steps_ago) {
  with_each(device, [&](BudgetChooser& chooser) { chooser.add_step_duration(seconds, steps_ago); });
}

Status BudgetPlans::learn_steps(TagId tag, DeviceId device, std::vector<KnownStep> steps) {
  if (in_forked_child()) return {};
  SPILLWAY_ASSIGN_OR_RETURN(DeviceRuntime* const made, session_.devices_.device(device));
  const Lock lock(session_.mutex_);
  BudgetPolicy* const budgets = session_.budgets_locked(tag);
  if (budgets == nullptr) return {};
  BudgetChooser& chooser = budgets->chooser(*made);
  for (KnownStep& step : steps)
    SPILLWAY_RETURN_IF_ERROR(chooser.learn(std::move(step)));
  return {};
}

}  // namespace spillway
