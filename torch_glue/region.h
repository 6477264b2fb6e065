// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/device/step_phase.h"

namespace spillway {

/// Ends the training step: as the public end_step(), for that reason.
/// Errors: BudgetError, if the step has missed its budget.
void end_step(StepEnd reason);

}  // namespace spillway
