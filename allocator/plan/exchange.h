// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/plan/budget_plan.h"
#include "allocator/plan/peak_profile.h"
#include "allocator/plan/step_profile.h"

#include <cstddef>

namespace spillway {

/// Whether computing the storage again costs this much that the link, where it is free, is the
/// better way. Requires: it can be recomputed.
bool is_expensive(const StepProfile& profile, std::size_t storage);

/// What computing takes up to the turn.
double forward_seconds(const StepProfile& profile);

/// What is expensive and offloaded may move or be recomputed, whatever the rest of the plan:
/// takes the other way for one after another, then for one of each kind, where that makes the step
/// quicker, and tries it as often as planning has time for. What is kept stays so.
///
/// No more moves than the link carries out in the forward pass, or than moved before: what leaves
/// later is still in its place when another tensor's turn comes there, which the simulator, to
/// which all memory is alike, does not see. `offloaded`: of the profile, with everything offloaded.
/// Requires: profile.timed(), and a plan that is complete().
void exchange_expensive(const StepProfile& profile,
                        const Uses& uses,
                        const PeakProfile& offloaded,
                        BudgetPlan& plan);

}  // namespace spillway
