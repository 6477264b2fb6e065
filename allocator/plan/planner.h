// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/plan/budget_plan.h"

#include <vector>

namespace spillway {

/// Plans the action of each candidate so that the step needs at most `budget` and has the least
/// predicted duration. If no plan fits, offloads or recomputes everything that lowers the peak.
/// Deterministic.
///
/// Candidates whose windows lower no peak are kept, whatever the budget, those that can only be
/// offloaded first. All others start offloaded or recomputed, and are put back while the budget
/// allows it. Of those that can only be offloaded, the ones that copy most per freed byte and event
/// are put back first: short windows, and contents that were written. Of the recomputable ones, the
/// most expensive per byte are put back first.
///
/// The simulator finds how many of the first kind are put back before the second kind. While the
/// link keeps up, offloading is free; beyond that, recomputation frees a byte for far less. If the
/// link has capacity left, the earliest of the candidates that are expensive to recompute are
/// offloaded too. Without times, offloaded candidates are put back first.
///
/// Offloaded candidates are fetched as early as there is room, in the order of their uses. A later
/// window of a candidate is fetched at its end.
///
/// Recomputation needs its operands (Operand). If the budget has no room for them, products are
/// offloaded instead, first those with the most operand bytes per offloaded byte.
///
/// Without recomputable candidates, those that a larger budget offloads are a subset of those of a
/// smaller one.
BudgetPlan plan_step(const StepProfile& profile, Bytes budget);

/// The least peak of any plan for the step: everything offloaded or recomputed, and no candidate on
/// the device only as an operand.
Bytes least_peak(const StepProfile& profile);

/// The plan with these actions, by candidate, with fetches as above.
/// Requires: recomputed candidates are recomputable.
BudgetPlan plan_with(const StepProfile& profile, std::vector<Action> actions, Bytes budget);

/// The plan of plan_step with the least memory among those of at most `most` bytes and at most
/// `slowdown` times the duration with everything kept. If none is fast enough, the plan for `most`.
/// Requires: profile.timed().
BudgetPlan plan_within(const StepProfile& profile, double slowdown, Bytes most);

}  // namespace spillway
