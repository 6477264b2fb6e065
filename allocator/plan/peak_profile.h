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

/// The times of first use of a step's candidates.
struct Uses {
  Uses(std::vector<std::size_t> first_use, std::size_t events);

  std::vector<std::size_t> first_use;  // by candidate, as first_uses
  std::vector<std::size_t> in_order;   // candidates in the order of first use
  /// By event the next event, itself included, with the first use of a candidate; the number of
  /// events if there is none. Fetches begin at a use, because a step's other events are not
  /// observable.
  std::vector<std::size_t> next;
};

/// A step's peaks while candidates, all offloaded at first, are put back one by one. The profile
/// must outlive it.
class PeakProfile {
 public:
  /// Starts with every recomputable candidate recomputed.
  explicit PeakProfile(const StepProfile& profile);
  /// Starts with the candidates that these actions keep put back.
  PeakProfile(const StepProfile& profile, const std::vector<Action>& actions);

  [[nodiscard]] std::uint64_t most() const { return peaks_.most(); }

  /// One past the last event that needs more than `limit`; 0 if there is none.
  [[nodiscard]] std::size_t end_above(std::uint64_t limit) const {
    return peaks_.free_since(0, profile_->events(), limit);
  }

  /// Keeps the candidate if the step then needs at most `limit`. Returns whether it does.
  bool keep(std::size_t candidate, std::uint64_t limit);

  /// Offloads a recomputable candidate; its operands are not needed for it any more.
  void offload(std::size_t candidate) { settle(candidate, Action::kOffload); }

  /// Recomputes it instead.
  void compute(std::size_t candidate) { settle(candidate, Action::kRecompute); }

  /// Applies these actions, by candidate. Requires: no candidate is kept or offloaded yet.
  void follow(const std::vector<Action>& actions);

  /// As first_uses.
  [[nodiscard]] std::vector<std::size_t> first_use() const { return operands_.first_use(); }

  /// Bytes resident at that event for the recomputation of `product`, possibly shared with others;
  /// zero once it is offloaded.
  [[nodiscard]] std::uint64_t operand_bytes_for(std::size_t product, std::size_t event) const;

  /// Schedules the candidate's fetch as early as `limit` allows, at `earliest` or later, at a use
  /// of some candidate. Returns that event.
  std::size_t fetch(std::size_t candidate, Bytes limit, std::size_t earliest, const Uses& uses);

 private:
  /// The peak over the events whose need grows by the action.
  std::uint64_t settle(std::size_t candidate, Action action) {
    return operands_.none() ? 0 : settle_operands(candidate, action);
  }

  std::uint64_t settle_operands(std::size_t candidate, Action action);
  std::uint64_t change_later(std::size_t operand, bool more);
  void keep_if_offloaded(std::size_t candidate, bool kept);
  template <typename Visit>
  void each_absence_before(std::size_t event, std::size_t candidate, Visit visit) const;

  const StepProfile* profile_;
  RangePeaks peaks_;
  OperandsInUse operands_;
};

/// Derives from the plan's actions the fetch events, the peak and the time. `room`: with the kept
/// candidates applied. `known`: of the profile.
void complete(const StepProfile& profile,
              const Uses& known,
              PeakProfile& room,
              Bytes budget,
              BudgetPlan& plan);

}  // namespace spillway
