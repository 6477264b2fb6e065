// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/step/policy.h"

#include <optional>

namespace spillway {

/// What has been reported of one tag's missed budgets, so that nothing is reported twice.
struct ReportedMisses {
  Bytes in_step{};             // needed bytes already reported for the step
  Bytes warned{};              // likewise for warnings, of all steps
  Bytes warned_that_adapts{};  // likewise for warnings with BudgetMiss::adapts
};

/// The missed budget that the program has not been notified of, if any. A miss that offloading
/// cannot correct replaces one that it can, then a larger one a smaller one.
/// Threads: confined.
class BudgetMisses {
 public:
  /// Adds a miss of a tag, unless it has been reported.
  void note(BudgetMiss miss, ReportedMisses& reported);

  /// The step on that device has ended with its optimizer step, so its shortage is exact. `first`:
  /// that was the first optimizer step.
  void confirm(DeviceId device, bool first);

  [[nodiscard]] bool any() const { return pending_.has_value(); }

  /// Returns the miss, once. With `keep_first`, one with BudgetMiss::first stays.
  std::optional<BudgetMiss> take(bool keep_first = false);

 private:
  std::optional<BudgetMiss> pending_;
};

}  // namespace spillway
