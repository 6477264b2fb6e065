// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/plan/budget_plan.h"

namespace spillway {

/// Predicts the duration of a step that follows the plan. The model has one compute stream, and one
/// copy at a time in each direction, in order. A copy out starts after its storage was saved, a
/// fetch at the event that the plan gives, each after the previous copy. An event waits for memory
/// while allocated bytes, plus released bytes whose copy out is unfinished, exceed `budget`. The
/// first use of a storage waits for its fetch, or recomputes it.
/// Requires: profile.timed().
StepTiming simulate(const StepProfile& profile, const BudgetPlan& plan, Bytes budget);

}  // namespace spillway
