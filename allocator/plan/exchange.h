// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/plan/budget_plan.h"
#include "allocator/plan/peak_profile.h"
#include "allocator/plan/step_profile.h"

#include <cstddef>

namespace spillway {

/// Whether recomputing the candidate takes more than a small share (6 %) of the time of its copy
/// out. An idle link is then the better way. False without times. Requires: it can be recomputed.
bool is_expensive(const StepProfile& profile, std::size_t candidate);

/// Improves a plan by switching expensive candidates between offloading and recomputation. Switches
/// one candidate after another, then one of each kind, and keeps a switch if the predicted step is
/// faster. Stops after a work limit. Kept candidates stay kept.
///
/// Offloads at most the bytes that the link can copy in the forward pass, or that were offloaded
/// before. A later copy out would delay the reuse of its memory, which the simulator does not
/// model. `offloaded`: of the profile, with everything offloaded or recomputed.
/// Requires: profile.timed(), and a plan that is complete().
void exchange_expensive(const StepProfile& profile,
                        const Uses& uses,
                        const PeakProfile& offloaded,
                        BudgetPlan& plan);

}  // namespace spillway
