// SPDX-License-Identifier: Apache-2.0
#include "allocator/runtime/fork.h"
#include "allocator/runtime/runtime.h"

#include <utility>

// Queries of the plans of tags with a budget.
namespace spillway {

const BudgetChooser* Runtime::budget_of_locked(TagId tag, DeviceId device) const {
  const auto found = tags_.find(tag);
  if (found == tags_.end()) return nullptr;
  const auto budget = found->second.budgets.find(device);
  return budget == found->second.budgets.end() ? nullptr : &budget->second;
}

std::optional<PlannedStep> Runtime::planned_step(TagId tag, DeviceId device) const {
  if (in_forked_child()) return std::nullopt;
  const LightLock lock(mutex_);
  const BudgetChooser* const budget = budget_of_locked(tag, device);
  return budget == nullptr ? std::nullopt : budget->planned_last();
}

Bytes Runtime::reserved_following_plans(TagId tag, DeviceId device) const {
  if (in_forked_child()) return {};
  const LightLock lock(mutex_);
  const BudgetChooser* const budget = budget_of_locked(tag, device);
  return budget == nullptr ? Bytes{} : budget->reserved_following_plans();
}

void Runtime::time(DeviceId device, const std::optional<StepTimes>& times) {
  if (in_forked_child()) return;
  const LightLock lock(mutex_);
  for (const TagId id : budgeted_) {
    Tag& tag = tags_.at(id);
    ++tags_visited_;
    const auto budget = tag.budgets.find(device);
    if (budget != tag.budgets.end()) budget->second.time(times);
  }
}

void Runtime::took(DeviceId device, double seconds, std::size_t steps_ago) {
  if (in_forked_child()) return;
  const LightLock lock(mutex_);
  for (const TagId id : budgeted_) {
    Tag& tag = tags_.at(id);
    ++tags_visited_;
    const auto budget = tag.budgets.find(device);
    if (budget != tag.budgets.end()) budget->second.took(seconds, steps_ago);
  }
}

std::vector<KnownStep> Runtime::known_steps(TagId tag, DeviceId device) const {
  if (in_forked_child()) return {};
  const LightLock lock(mutex_);
  const BudgetChooser* const budget = budget_of_locked(tag, device);
  return budget == nullptr ? std::vector<KnownStep>() : budget->known();
}

std::uint64_t Runtime::sum_of(TagId tag, std::uint64_t (BudgetChooser::*count)() const) const {
  if (in_forked_child()) return 0;
  const LightLock lock(mutex_);
  const auto found = tags_.find(tag);
  std::uint64_t sum = 0;
  if (found == tags_.end()) return sum;
  for (const auto& [device, budget] : found->second.budgets)
    sum += (budget.*count)();
  return sum;
}

std::uint64_t Runtime::records(TagId tag) const {
  return sum_of(tag, &BudgetChooser::records);
}

std::uint64_t Runtime::timed_steps(TagId tag) const {
  return sum_of(tag, &BudgetChooser::timed);
}

Status Runtime::learn_steps(TagId tag, DeviceId device, std::vector<KnownStep> steps) {
  if (in_forked_child()) return {};
  SPILLWAY_RETURN_IF_ERROR(this->device(device).status());
  const LightLock lock(mutex_);
  Tag* const found = find_tag_locked(tag);
  if (found == nullptr || !found->budget) return {};
  BudgetChooser& budget = budget_on_locked(*found, *devices_.at(device));
  for (KnownStep& step : steps)
    SPILLWAY_RETURN_IF_ERROR(budget.learn(std::move(step)));
  return {};
}

}  // namespace spillway
