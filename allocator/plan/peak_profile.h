// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/plan/budget_plan.h"
#include "allocator/plan/operands_in_use.h"
#include "allocator/plan/range_peaks.h"
#include "allocator/plan/step_profile.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway {

/// When the storages of a step are wanted.
struct Uses {
  Uses(std::vector<std::size_t> wanted, std::size_t places);

  std::vector<std::size_t> wanted;    // by storage, as wanted_places
  std::vector<std::size_t> in_order;  // storages, the first one that is wanted first
  /// By place the first one from it on at which a storage is wanted; their number where there is
  /// none. What is fetched begins with a use: nothing else of a step is seen.
  std::vector<std::size_t> next;
};

/// A step's peaks while storages, all offloaded, are put back one by one. The profile must outlive
/// it.
class PeakProfile {
 public:
  /// All that can be is recomputed.
  explicit PeakProfile(const StepProfile& profile);
  /// With what these actions keep, by storage, put back.
  PeakProfile(const StepProfile& profile, const std::vector<Action>& actions);

  [[nodiscard]] std::uint64_t most() const { return peaks_.most(); }

  /// One behind the last place that needs more than `limit`; 0 where none does.
  [[nodiscard]] std::size_t end_above(std::uint64_t limit) const {
    return peaks_.free_since(0, profile_->places(), limit);
  }

  /// Keeps the storage where the step then needs at most `limit`.
  bool keep(std::size_t storage, std::uint64_t limit);

  /// The storage moves, though it could be recomputed: nothing is there for that any more.
  void move(std::size_t storage) { settle(storage, Action::kMove); }

  /// It is recomputed after all.
  void compute(std::size_t storage) { settle(storage, Action::kRecompute); }

  /// Keeps and moves what these actions do, by storage. Requires: nothing is kept or moves yet.
  void follow(const std::vector<Action>& actions);

  /// As wanted_places.
  [[nodiscard]] std::vector<std::size_t> wanted() const { return operands_.wanted(); }

  /// Bytes that are there at that place because `product` is recomputed, and maybe others: none
  /// once it moves.
  [[nodiscard]] std::uint64_t there_for(std::size_t product, std::size_t place) const;

  /// Brings the storage back as early as `limit` allows, at `earliest` or after, with a use of some
  /// storage; that place.
  std::size_t fetch(std::size_t storage, Bytes limit, std::size_t earliest, const Uses& uses);

 private:
  /// The most at the places where others need more because of it.
  std::uint64_t settle(std::size_t storage, Action action) {
    return operands_.none() ? 0 : settle_operands(storage, action);
  }

  std::uint64_t settle_operands(std::size_t storage, Action action);
  std::uint64_t change_later(std::size_t operand, bool more);
  void keep_where_offloaded(std::size_t storage, bool kept);
  template <typename Visit>
  void each_away_before(std::size_t place, std::size_t storage, Visit visit) const;

  const StepProfile* profile_;
  RangePeaks peaks_;
  std::vector<std::size_t> first_;  // absence of each storage
  OperandsInUse operands_;
};

/// Writes what follows from the plan's actions: when what moves is fetched, the peak and the time.
/// `room`: with what is kept. `known`: of the profile.
void complete(const StepProfile& profile,
              const Uses& known,
              PeakProfile& room,
              Bytes budget,
              BudgetPlan& plan);

}  // namespace spillway
