// SPDX-License-Identifier: Apache-2.0
#include "allocator/step/budget_misses.h"

#include <utility>

namespace spillway {
namespace {

/// A difference below this share is not reported a second time.
constexpr std::uint64_t kAlikeShare = 1024;
/// Likewise for warnings of different steps.
constexpr std::uint64_t kAlikeWarnings = 16;

}  // namespace

void BudgetMisses::note(BudgetMiss miss, ReportedMisses& reported) {
  const Bytes least = miss.shortage.least;
  Bytes& warned = miss.adapts ? reported.warned_that_adapts : reported.warned;
  if (miss.warns && least <= warned + Bytes{warned.count() / kAlikeWarnings}) return;
  if (pending_ && pending_->device == miss.device && pending_->budget == miss.budget) {
    if (miss.adapts && !pending_->adapts) return;
    if (miss.adapts == pending_->adapts && least < pending_->shortage.least) return;
  } else if (least <= reported.in_step + Bytes{reported.in_step.count() / kAlikeShare}) {
    return;  // the optimizer step adds no information unless it needs more
  }
  reported.in_step = least;
  if (miss.warns) warned = least;
  pending_ = std::move(miss);
}

void BudgetMisses::confirm(DeviceId device, bool first) {
  if (!pending_ || pending_->device != device) return;
  pending_->first = first;
  pending_->shortage.lower_bound = false;  // its micro-batches are tracked to their end
}

std::optional<BudgetMiss> BudgetMisses::take(bool keep_first) {
  if (keep_first && pending_ && pending_->first) return std::nullopt;
  return std::exchange(pending_, std::nullopt);
}

}  // namespace spillway
