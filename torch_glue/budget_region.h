// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway {

/// Reports a missed budget of a BudgetRegion, once: throws BudgetError, or warns.
///
/// `optimized`: an optimizer step has ended. The first one only warns, because the next step shows
/// its states too.
void report_missed_budget(bool optimized = false);

}  // namespace spillway
