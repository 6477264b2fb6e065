// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/plan_request.h"

#include "allocator/plan/planner.h"
#include "allocator/plan/shared_room.h"
#include "allocator/plan/simulator.h"

#include <algorithm>
#include <map>
#include <utility>

namespace spillway {
namespace {

/// What another plan has to save.
constexpr double kWorthwhile = 0.01;

/// A fetch begins at the first of this many uses that takes place: what was used in the recorded
/// step only to recompute others is not used if these are kept.
constexpr int kTriggers = 8;

/// By storage, the storages whose fetch begins at its first use, if it has not begun before.
std::vector<std::vector<std::size_t>> due_in(const BudgetPlan& plan) {
  std::vector<std::vector<std::size_t>> due(plan.actions.size());
  const auto& first_use = plan.first_use;
  std::map<std::size_t, std::size_t> at;  // the first storage that is used at an event
  for (std::size_t storage = 0; storage < plan.actions.size(); ++storage)
    at.try_emplace(first_use[storage], storage);
  std::vector<std::size_t> order;
  for (std::size_t storage = 0; storage < plan.actions.size(); ++storage)
    if (plan.actions[storage] == Action::kOffload) order.push_back(storage);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
    return first_use[left] < first_use[right];
  });
  for (const std::size_t storage : order) {
    auto trigger = at.lower_bound(plan.fetch[storage]);
    for (int tries = 0; tries < kTriggers; ++tries, ++trigger) {
      if (trigger == at.end() || trigger->first >= first_use[storage]) break;
      due[trigger->second].push_back(storage);
    }
  }
  return due;
}

}  // namespace

void PlanRequest::run() {
  if (!profile) {
    StepProfile made =
        profile_of(std::move(recorded), sizes, recomputable, times ? &*times : nullptr);
    made.free_at_once = terms.free_at_once;
    profile = std::make_shared<const StepProfile>(std::move(made));
  }
  Bytes within = saturating_sub(allowed, margin);
  // This close to its minimum, plan for the minimum.
  const Bytes least = least_peak(*profile);
  const Bytes spare = terms.foreseen.spare(terms.budget, sizes.size());
  if (within >= least && within <= least + spare) within = least;
  const bool limits_time = terms.slowdown > 0 && profile->timed();
  const bool shares = !terms.model_state.bytes.zero() && profile->timed();
  if (limits_time) {
    plan = plan_within(*profile, terms.slowdown, within);
  } else if (shares) {
    plan = plan_beside(*profile, within, terms.model_state, least);
  } else {
    plan = plan_step(*profile, within);
  }
  const ModelStateTerms model_state = shares ? terms.model_state : ModelStateTerms{};
  if (before && !is_planned_alike(*profile, *before, model_state)) before.reset();
  if (before && !limits_time && profile->timed() && before->peak <= within) {
    const bool apart = shares && before->model_state.empty();
    before->budget = shares ? std::clamp(before->budget, before->peak, within) : plan.budget;
    before->timing = simulate_beside(*profile, *before, apart ? before->budget : within);
    const auto seconds = [&](const BudgetPlan& of) {
      return seconds_beside(*profile, of, within, terms.model_state);
    };
    if (seconds(*before) <= seconds(plan) * (1 + kWorthwhile)) plan = *std::move(before);
  }
  due = due_in(plan);
}

}  // namespace spillway
