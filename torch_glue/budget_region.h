// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway {

/// Throws BudgetError where a step of a BudgetRegion has missed its budget, and nothing was told.
void throw_where_missed();

}  // namespace spillway
