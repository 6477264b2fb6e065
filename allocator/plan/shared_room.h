// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/plan/budget_plan.h"

namespace spillway {

/// The model state beside a step. Zero bytes: the step need not share its budget.
struct ModelStateTerms {
  Bytes bytes{};
  bool streams = false;  // it has no room at once, and is fetched again for each of its uses
};

/// Seconds of the copies of model state that has no room beside a plan: of `model_state` bytes,
/// what exceeds `within` with the plan's peak leaves during the step and returns. Zero without link
/// rates.
double seconds_of_model_state(const StepProfile& profile,
                              Bytes peak,
                              Bytes within,
                              Bytes model_state);

/// Divides `within` bytes between a step and the model state beside it, which leaves where the step
/// needs the room, and returns: the plan for which the step and these copies take the least time
/// together. The more room a step has, the less a further byte saves it, while each byte of model
/// state costs the same. So the sum has one minimum, which is searched for.
/// `model_state.bytes`: those that would be on the device at the step's peak if the step needed no
/// room. A part of it stays in any case, so that its copies have time. `least`: of the profile.
/// Where model state streams, the step is planned together with that which it uses, so that its
/// timing has the waits for both.
/// Requires: profile.timed().
BudgetPlan plan_beside(const StepProfile& profile,
                       Bytes within,
                       const ModelStateTerms& model_state,
                       Bytes least);

/// Whether plan_beside() plans so as it made that plan: alone, or together with model state.
bool is_planned_alike(const StepProfile& profile,
                      const BudgetPlan& plan,
                      const ModelStateTerms& model_state);

/// Predicts the timing of a result of plan_beside() for another budget, which is that of both if
/// they were planned together.
StepTiming simulate_beside(const StepProfile& profile, const BudgetPlan& plan, Bytes budget);

/// Seconds of the step and of the copies of model state, as plan_beside() compares them.
double seconds_beside(const StepProfile& profile,
                      const BudgetPlan& plan,
                      Bytes within,
                      const ModelStateTerms& model_state);

}  // namespace spillway
