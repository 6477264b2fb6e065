// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/device/step_phase.h"

namespace spillway {

/// Ends the training step: as the public end_step(), for that reason.
/// Errors: BudgetError, if the step has missed its budget.
void end_step(StepEnd reason);

/// Reports a missed budget of a BudgetRegion, once: throws BudgetError, or warns.
///
/// `optimized`: an optimizer step has ended. The first one only warns, because the next step shows
/// its states too.
void report_missed_budget(bool optimized = false);

}  // namespace spillway
