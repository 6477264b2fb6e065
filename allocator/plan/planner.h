// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/plan/budget_plan.h"

#include <vector>

namespace spillway {

/// What becomes of each storage so that the step needs at most `budget` and is predicted to take
/// the least time; with everything offloaded that helps where no plan is enough. Deterministic.
///
/// Storages whose absence lowers no peak are kept, whatever the budget, those that can only move
/// before the others. From the rest, all offloaded,
/// storages are put back while the budget allows it: of those that can only move the latest first,
/// because the earliest are offloaded longest and their copies have the most time; of those that
/// can be recomputed the most_expensive per byte first. How many of the first kind are put back
/// before the second kind has its turn is searched for with the simulator: while the link keeps up,
/// moving is free, and beyond that recomputing frees a byte for far less. Where the link could
/// carry more for free than what can only move, the earliest of what is expensive to recompute
/// move too. Without times, what moves is put back first.
///
/// What has moved is fetched as early as there is room for it, in the order of its uses.
///
/// What is recomputed needs what it is computed from (Operand). Where the budget has no room
/// for that, it moves: first those that most is there for, by the bytes that they move.
///
/// Without storages that can be recomputed a larger budget never moves more: what it moves is
/// among what the smaller one does.
BudgetPlan plan_step(const StepProfile& profile, Bytes budget);

/// The least that any plan for the step needs: with everything offloaded, and nothing on the device
/// only so that another storage can be recomputed from it.
Bytes least_peak(const StepProfile& profile);

/// The plan with these actions, by storage; what moves is fetched as above. Requires: what is
/// recomputed can be.
BudgetPlan plan_with(const StepProfile& profile, std::vector<Action> actions, Bytes budget);

/// The plan of plan_step that needs the least memory, of those that are predicted to take at most
/// `slowdown` times what the step takes with everything kept, and that need at most `most`; where
/// none of these is fast enough, the plan for `most`. Requires: profile.timed().
BudgetPlan plan_within(const StepProfile& profile, double slowdown, Bytes most);

}  // namespace spillway
