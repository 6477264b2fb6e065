// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/plan_curve.h"

#include "allocator/base/check.h"
#include "allocator/plan/planner.h"

#include <algorithm>

namespace spillway {

double PlanPoint::optimality() const {
  return timing.total() > 0 ? bound.seconds / timing.total() : 1;
}

PlanPoint point_of(const StepProfile& profile, const BudgetPlan& plan, Bytes budget) {
  PlanPoint point{budget, plan.peak};
  point.kept = plan.bytes(profile, Action::kKeep);
  point.offloaded = plan.bytes(profile, Action::kOffload);
  point.recomputed = plan.bytes(profile, Action::kRecompute);
  point.timing = plan.timing;
  point.bound = lower_bound(profile, std::max(budget, plan.least));
  return point;
}

std::vector<PlanPoint> plan_curve(const StepProfile& profile,
                                  std::size_t points,
                                  const std::function<Bytes(Bytes)>& budget_for) {
  SPILLWAY_CHECK(points >= 2);
  const std::vector<Action> keep(profile.candidates.size(), Action::kKeep);
  const auto allocated = allocated_bytes(profile, keep);
  const std::uint64_t most =
      allocated.empty() ? 0 : *std::max_element(allocated.begin(), allocated.end());
  const std::uint64_t least = plan_step(profile, Bytes{}).least.count();
  std::vector<PlanPoint> curve;
  for (std::size_t point = 0; point < points; ++point) {
    const std::uint64_t more = (most - std::min(most, least)) / (points - 1) * point;
    const Bytes within{point + 1 == points ? most : least + more};
    curve.push_back(point_of(profile, plan_step(profile, within), budget_for(within)));
  }
  return curve;
}

}  // namespace spillway
