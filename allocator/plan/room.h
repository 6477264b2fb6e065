// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/plan/budget_plan.h"
#include "allocator/plan/range_peaks.h"
#include "allocator/plan/step_profile.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway {

/// When the storages of a step are wanted.
struct Uses {
  explicit Uses(const StepProfile& profile);

  std::vector<std::size_t> in_order;  // storages, the first one that is wanted first
  /// By place the first one from it on at which a storage is wanted; their number where there is
  /// none. What comes back begins with a use: nothing else of a step is seen.
  std::vector<std::size_t> next;
};

/// A step's peaks while storages, all away, are put back one by one. The profile must outlive it.
class Room {
 public:
  explicit Room(const StepProfile& profile);
  /// With what these actions keep, by storage, put back.
  Room(const StepProfile& profile, const std::vector<Action>& actions);

  [[nodiscard]] std::uint64_t most() const { return peaks_.most(); }

  /// Keeps the storage where the step then needs at most `limit`.
  bool keep(std::size_t storage, std::uint64_t limit);

  /// Brings the storage back as early as `limit` allows, at `earliest` or after, with a use of some
  /// storage; that place.
  std::size_t fetch(std::size_t storage, Bytes limit, std::size_t earliest, const Uses& uses);

 private:
  const StepProfile& profile_;
  RangePeaks peaks_;
  std::vector<std::size_t> first_;  // absence of each storage
};

/// Writes what follows from the plan's actions: when what moves comes back, the peak and the time.
/// `room`: with what is kept.
void complete(
    const StepProfile& profile, const Uses& uses, Room& room, Bytes budget, BudgetPlan& plan);

}  // namespace spillway
