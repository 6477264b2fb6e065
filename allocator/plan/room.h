// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/plan/budget_plan.h"
#include "allocator/plan/range_peaks.h"
#include "allocator/plan/step_profile.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace spillway {

/// When the storages of a step are wanted.
struct Uses {
  explicit Uses(const StepProfile& profile);
  /// In a step with these actions (wanted_places).
  Uses(const StepProfile& profile, const std::vector<Action>& actions);

  std::vector<std::size_t> wanted;    // by storage
  std::vector<std::size_t> in_order;  // storages, the first one that is wanted first
  /// By place the first one from it on at which a storage is wanted; their number where there is
  /// none. What comes back begins with a use: nothing else of a step is seen.
  std::vector<std::size_t> next;

 private:
  void order(std::size_t places);
};

/// A step's peaks while storages, all away, are put back one by one. The profile must outlive it.
class Room {
 public:
  /// All that can be is computed again.
  explicit Room(const StepProfile& profile);
  /// With what these actions keep, by storage, put back.
  Room(const StepProfile& profile, const std::vector<Action>& actions);

  [[nodiscard]] std::uint64_t most() const { return peaks_.most(); }

  /// One behind the last place that needs more than `limit`; 0 where none does.
  [[nodiscard]] std::size_t end_above(std::uint64_t limit) const {
    return peaks_.free_since(0, profile_.places(), limit);
  }

  /// Keeps the storage where the step then needs at most `limit`.
  bool keep(std::size_t storage, std::uint64_t limit);

  /// The storage moves, though it could be computed again: nothing is there for that any more.
  void move(std::size_t storage) { not_computed(storage); }

  /// Bytes that are there at that place for `product`, and maybe for others: none once it moves.
  [[nodiscard]] std::uint64_t there_for(std::size_t product, std::size_t place) const;

  /// Brings the storage back as early as `limit` allows, at `earliest` or after, with a use of some
  /// storage; that place.
  std::size_t fetch(std::size_t storage, Bytes limit, std::size_t earliest, const Uses& uses);

 private:
  /// Which operands each storage is, in their order, and which are there for it.
  struct Index;
  void not_computed(std::size_t product);
  template <typename Visit>
  void each_away_before(std::size_t place, std::size_t storage, Visit visit) const;

  const StepProfile& profile_;
  RangePeaks peaks_;
  std::vector<std::size_t> first_;         // absence of each storage
  std::shared_ptr<const Index> operands_;  // null where there are none
  std::vector<Action> actions_;            // where there are, what becomes of each storage
  std::vector<bool> in_use_;               // by operand
};

/// Writes what follows from the plan's actions: when what moves comes back, the peak and the time.
/// `room`: with what is kept. `known`: of the profile.
void complete(
    const StepProfile& profile, const Uses& known, Room& room, Bytes budget, BudgetPlan& plan);

}  // namespace spillway
