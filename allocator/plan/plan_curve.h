// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/plan/bound.h"
#include "allocator/plan/budget_plan.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace spillway {

/// What a budget costs: the plan for it, in a few numbers, and what none can beat.
struct PlanPoint {
  Bytes budget{};
  Bytes peak{};            // of the plan; above the budget where no plan is within it
  std::uint64_t kept = 0;  // bytes of storages
  std::uint64_t moved = 0;
  std::uint64_t recomputed = 0;
  StepTiming timing{};
  StepBound bound{};

  /// The share of the limit that the plan reaches: the bound's seconds of its own.
  [[nodiscard]] double of_limit() const;
};

/// Of that plan for that budget. Requires: profile.timed().
PlanPoint point_of(const StepProfile& profile, const BudgetPlan& plan, Bytes budget);

/// From everything offloaded to everything kept, at equal distances. `budget_for`: the budget that
/// leaves this much for what is live. Requires: profile.timed(), and at least two points.
std::vector<PlanPoint> plan_curve(
    const StepProfile& profile,
    std::size_t points,
    const std::function<Bytes(Bytes)>& budget_for = [](Bytes live) { return live; });

}  // namespace spillway
