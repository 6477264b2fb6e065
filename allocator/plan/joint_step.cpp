// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/joint_step.h"

#include <algorithm>
#include <utility>

namespace spillway {

JointStep::JointStep(const StepProfile& step) : step_(step), profile_(step) {
  const std::size_t end = step.events();
  profile_.others = step.candidates.size();
  for (const StepCurve::ModelStateUses& uses : step.memory.model_state_uses)
    model_state_ += Bytes{uses.bytes};
  for (std::uint64_t& peak : profile_.memory.peaks)
    peak += model_state_.count();
  for (const StepCurve::ModelStateUses& uses : step.memory.model_state_uses) {
    const std::uint64_t bytes = uses.bytes;
    const std::uint64_t out = uses.written ? bytes : 0;
    if (uses.from < uses.to)
      add(uses, uses.before, {{uses.from, uses.to, bytes, uses.from, out, /*in=*/bytes}});
    if (uses.first == 0) continue;
    std::vector<Window> windows{{0, uses.first, bytes, 0, /*out=*/0, /*in=*/bytes}};
    if (uses.last < end) windows.push_back({uses.last, end, bytes, uses.last, out, /*in=*/0});
    add(uses, 0, std::move(windows));
  }
  profile_.memory.model_state_uses.clear();
}

void JointStep::add(const StepCurve::ModelStateUses& uses,
                    std::size_t after,
                    std::vector<Window> windows) {
  // Peaks are those with all candidates offloaded.
  for (const Window& window : windows) {
    for (std::size_t event = window.from; event < window.to; ++event)
      profile_.memory.peaks[event] -= window.bytes;
  }
  Candidate candidate{uses.bytes};
  candidate.windows = std::move(windows);
  profile_.candidates.push_back(std::move(candidate));
  idle_.push_back({uses.storage, after});
}

Bytes JointStep::peak_of(const StepProfile& profile, const BudgetPlan& plan) {
  const auto allocated = allocated_bytes(profile, plan.actions, plan.fetch);
  return Bytes{allocated.empty() ? 0 : *std::max_element(allocated.begin(), allocated.end())};
}

BudgetPlan JointStep::split(BudgetPlan joint) const {
  const std::size_t own = step_.candidates.size();
  for (std::size_t each = own; each < joint.actions.size(); ++each) {
    const Idle& idle = idle_[each - own];
    if (joint.actions[each] == Action::kOffload)
      joint.model_state.push_back({idle.storage, idle.after, joint.fetch[each]});
  }
  joint.actions.resize(own);
  joint.fetch.resize(own);
  joint.first_use.resize(own);
  joint.peak = peak_of(step_, joint);
  joint.budget = std::max(joint.peak, saturating_sub(joint.budget, model_state_));
  return joint;
}

BudgetPlan JointStep::join(BudgetPlan plan) const {
  const std::vector<ModelStateLeave> leaving = std::exchange(plan.model_state, {});
  auto next = leaving.begin();
  for (const Idle& idle : idle_) {
    const std::size_t use = profile_.first_use(plan.actions.size());
    const bool leaves =
        next != leaving.end() && next->storage == idle.storage && next->after == idle.after;
    plan.actions.push_back(leaves ? Action::kOffload : Action::kKeep);
    plan.fetch.push_back(leaves ? next->fetch : use);
    plan.first_use.push_back(use);
    if (leaves) ++next;
  }
  plan.budget += model_state_;
  plan.peak = peak_of(profile_, plan);
  return plan;
}

}  // namespace spillway
