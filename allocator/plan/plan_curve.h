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

/// The cost of a budget: the plan's key figures and its lower bound.
struct PlanPoint {
  Bytes budget{};
  Bytes peak{};            // of the plan; above the budget if no plan fits
  std::uint64_t kept = 0;  // bytes of storages
  std::uint64_t offloaded = 0;
  std::uint64_t recomputed = 0;
  StepTiming timing{};
  StepBound bound{};

  /// Optimality of the plan: the bound's seconds divided by the plan's.
  [[nodiscard]] double optimality() const;
};

/// The point of that plan and budget. Requires: profile.timed().
PlanPoint point_of(const StepProfile& profile, const BudgetPlan& plan, Bytes budget);

/// Points from everything offloaded to everything kept, at equal distances. `budget_for`: the
/// budget that leaves the given bytes for allocations.
/// Requires: profile.timed(), and at least two points.
std::vector<PlanPoint> plan_curve(
    const StepProfile& profile,
    std::size_t points,
    const std::function<Bytes(Bytes)>& budget_for = [](Bytes allocated) { return allocated; });

}  // namespace spillway
