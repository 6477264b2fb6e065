// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/budget_plan.h"

#include "allocator/plan/simulator.h"

#include <algorithm>

namespace spillway {
namespace {

std::optional<std::string> check_storage(const StepProfile& profile,
                                         const BudgetPlan& plan,
                                         std::size_t storage,
                                         std::size_t first_use) {
  const StepProfile::Storage& known = profile.storages[storage];
  const std::string name = "storage " + std::to_string(storage);
  if (plan.actions[storage] == Action::kRecompute && !known.recompute) {
    return name + " cannot be recomputed";
  }
  if (plan.actions[storage] != Action::kOffload) return std::nullopt;
  if (plan.fetch[storage] > first_use) return name + " is fetched after its first use";
  if (plan.fetch[storage] < std::min(first_use, profile.boundary)) {
    return name + " is fetched before the backward pass";
  }
  return std::nullopt;
}

}  // namespace

std::uint64_t BudgetPlan::bytes(const StepProfile& profile, Action action) const {
  std::uint64_t sum = 0;
  for (std::size_t storage = 0; storage < actions.size(); ++storage)
    sum += actions[storage] == action ? profile.storages[storage].bytes : 0;
  return sum;
}

std::vector<std::uint64_t> allocated_bytes(const StepProfile& profile,
                                           const std::vector<Action>& actions,
                                           const std::vector<std::size_t>& fetch) {
  // Prefix sums of the changes at each event.
  std::vector<std::uint64_t> change(profile.events() + 1);
  const auto in_use = operands_in_use(profile, actions);
  const auto first_use = first_uses(profile, in_use);
  for (const RecordedStep::Absence& offloaded : profile.memory.absences) {
    const Action action = actions[offloaded.storage];
    std::size_t from = offloaded.to;
    if (action == Action::kKeep) from = offloaded.from;
    // Only the fetch for its first use is planned.
    if (action == Action::kOffload && !fetch.empty() &&
        offloaded.to <= first_use[offloaded.storage])
      from = std::clamp(fetch[offloaded.storage], offloaded.from, offloaded.to);
    change[from] += offloaded.bytes;
    change[offloaded.to] -= offloaded.bytes;  // wraps, and wraps back
  }
  for (std::size_t row = 0; row < in_use.size(); ++row) {
    const Operand& operand = profile.memory.operands[row];
    const Action action = actions[operand.storage];
    if (in_use[row] || action == Action::kKeep) continue;
    if (action == Action::kRecompute) {
      const ComputedLater later = computed_later(profile.memory, operand);
      if (later.event < profile.events()) {
        change[later.event] += later.bytes;
        change[later.event + 1] -= later.bytes;
      }
    }
    std::size_t back = operand.to;
    if (action == Action::kOffload && !fetch.empty() && operand.to <= first_use[operand.storage])
      back = std::clamp(fetch[operand.storage], operand.from, operand.to);
    change[operand.from] -= operand.bytes;
    change[back] += operand.bytes;
  }
  std::vector<std::uint64_t> allocated = profile.memory.peaks;
  std::uint64_t present = 0;
  for (std::size_t event = 0; event < allocated.size(); ++event) {
    present += change[event];
    allocated[event] += present;
  }
  return allocated;
}

std::optional<std::string> check_plan(const StepProfile& profile,
                                      const BudgetPlan& plan,
                                      Bytes budget) {
  const std::size_t storages = profile.storages.size();
  if (plan.actions.size() != storages || plan.fetch.size() != storages) {
    return "it is for " + std::to_string(plan.actions.size()) + " storages, not " +
           std::to_string(storages);
  }
  const auto first_use = first_uses(profile, plan.actions);
  if (plan.first_use != first_use) return "its first uses are not those of the profile";
  for (std::size_t storage = 0; storage < storages; ++storage) {
    if (auto wrong = check_storage(profile, plan, storage, first_use[storage])) return wrong;
  }
  const auto allocated = allocated_bytes(profile, plan.actions, plan.fetch);
  const auto most = std::max_element(allocated.begin(), allocated.end());
  const std::uint64_t peak = most == allocated.end() ? 0 : *most;
  if (peak != plan.peak.count()) {
    return "it needs " + std::to_string(peak) + " bytes, not " + std::to_string(plan.peak.count());
  }
  if (peak > std::max(budget, plan.least).count()) {
    return "it needs " + std::to_string(peak) + " bytes, more than it may";
  }
  if (profile.timed() && simulate(profile, plan, budget).total() != plan.timing.total()) {
    return "its predicted time is not that of its actions";
  }
  return std::nullopt;
}

}  // namespace spillway
