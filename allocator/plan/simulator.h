// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/plan/budget_plan.h"

namespace spillway {

/// How long a step takes that follows the plan: one stream that computes, one copy at a time in
/// each direction, first come first served. A copy out starts when its storage has been saved, a
/// copy in at the place that the plan names, each when the one before it is done. A place waits for
/// memory where what is live there and what has been released but not copied out yet is more than
/// `budget`; a storage that is wanted waits for its copy, or is recomputed.
/// Requires: profile.timed().
StepTiming simulate(const StepProfile& profile, const BudgetPlan& plan, Bytes budget);

}  // namespace spillway
