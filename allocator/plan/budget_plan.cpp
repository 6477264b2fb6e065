// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/budget_plan.h"

#include "allocator/plan/simulator.h"

#include <algorithm>

namespace spillway {
namespace {

std::optional<std::string> check_candidate(const StepProfile& profile,
                                           const BudgetPlan& plan,
                                           std::size_t candidate,
                                           const std::vector<char>& is_use) {
  const Candidate& known = profile.candidates[candidate];
  const std::string name = "candidate " + std::to_string(candidate);
  if (plan.actions[candidate] == Action::kRecompute && !known.recompute) {
    return name + " cannot be recomputed";
  }
  if (plan.actions[candidate] != Action::kOffload || known.windows.empty()) return std::nullopt;
  const std::size_t fetch = plan.fetch[candidate];
  const std::size_t first_use = plan.first_use[candidate];
  if (fetch > first_use) return name + " is fetched after its first use";
  if (fetch < known.windows.front().from) return name + " is fetched before it was offloaded";
  if (fetch < first_use && is_use[fetch] == 0) return name + " is fetched where nothing is used";
  return std::nullopt;
}

/// The changes of the allocated bytes at each event while a storage is absent. `fetch`: where it is
/// fetched for its first use, unless it is kept or recomputed.
void add_windows(const Candidate& storage,
                 Action action,
                 std::size_t first_use,
                 std::optional<std::size_t> fetch,
                 std::vector<std::uint64_t>& change) {
  for (const Window& window : storage.windows) {
    std::size_t back = action == Action::kKeep ? window.from : window.to;
    // Only the fetch for the first use is planned.
    if (fetch && window.to <= first_use) back = std::clamp(*fetch, window.from, window.to);
    change[back] += window.bytes;
    change[window.to] -= window.bytes;  // wraps, and wraps back
    // It has been fetched for a product that is recomputed within the window.
    if (fetch && window.from < first_use && first_use < window.to) {
      change[std::max(*fetch, window.from)] += window.bytes;
      change[first_use] -= window.bytes;
    }
  }
}

}  // namespace

std::uint64_t BudgetPlan::bytes(const StepProfile& profile, Action action) const {
  std::uint64_t sum = 0;
  for (std::size_t candidate = 0; candidate < actions.size(); ++candidate)
    sum += actions[candidate] == action ? profile.candidates[candidate].bytes : 0;
  return sum;
}

std::vector<std::uint64_t> allocated_bytes(const StepProfile& profile,
                                           const std::vector<Action>& actions,
                                           const std::vector<std::size_t>& fetch) {
  // Prefix sums of the changes at each event.
  std::vector<std::uint64_t> change(profile.events() + 1);
  const auto in_use = operands_in_use(profile, actions);
  const auto first_use = first_uses(profile, actions, in_use);
  for (std::size_t candidate = 0; candidate < actions.size(); ++candidate) {
    const bool fetches = actions[candidate] == Action::kOffload && !fetch.empty();
    add_windows(profile.candidates[candidate],
                actions[candidate],
                first_use[candidate],
                fetches ? std::optional(fetch[candidate]) : std::nullopt,
                change);
  }
  for (std::size_t row = 0; row < in_use.size(); ++row) {
    const Operand& operand = profile.memory.operands[row];
    const Action action = actions[operand.storage];
    if (in_use[row] || action == Action::kKeep) continue;
    if (action == Action::kRecompute) {
      const ComputedLater later = computed_later(profile, operand);
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
  const std::size_t candidates = profile.candidates.size();
  if (plan.actions.size() != candidates || plan.fetch.size() != candidates) {
    return "it is for " + std::to_string(plan.actions.size()) + " candidates, not " +
           std::to_string(candidates);
  }
  const auto first_use = first_uses(profile, plan.actions);
  if (plan.first_use != first_use) return "its first uses are not those of the profile";
  std::vector<char> is_use(profile.events() + 1);
  for (const std::size_t event : first_use)
    is_use[event] = 1;
  for (std::size_t candidate = 0; candidate < candidates; ++candidate)
    if (auto wrong = check_candidate(profile, plan, candidate, is_use)) return wrong;
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
