// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway {

/// Throws BudgetError if a step of a BudgetRegion has missed its budget and the miss has not been
/// reported.
void throw_if_missed();

}  // namespace spillway
