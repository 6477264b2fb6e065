// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/plan/step_profile.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace spillway {

/// Where a step's time goes, in seconds; the stalls are what computing waits.
struct StepTiming {
  double compute = 0;
  double recompute = 0;
  double stall_out = 0;  // for memory that still leaves
  double stall_in = 0;   // for what still is fetched

  [[nodiscard]] double total() const { return compute + recompute + stall_out + stall_in; }
};

/// What becomes of each storage of a step. Everything is by storage.
struct BudgetPlan {
  std::vector<Action> actions{};
  /// For what moves: the place at whose beginning its way back starts, at most the one in which it
  /// is wanted.
  std::vector<std::size_t> fetch{};
  std::vector<std::size_t> wanted{};  // as wanted_places
  Bytes budget{};                     // that it was made for
  Bytes peak{};                       // what the step needs, at the device's most
  Bytes least{};                      // what it would need with everything offloaded that can be
  StepTiming timing{};                // predicted; zero where the profile has no times

  [[nodiscard]] std::uint64_t bytes(const StepProfile& profile, Action action) const;
};

/// What is live at each place if the step goes by those actions; the way back of what moves starts
/// at `fetch`, or, with none, where it is wanted.
std::vector<std::uint64_t> allocated_bytes(const StepProfile& profile,
                                           const std::vector<Action>& actions,
                                           const std::vector<std::size_t>& fetch = {});

/// What is wrong with the plan for a step that may need `budget`; nothing where it can be followed.
/// Looks at all of it again, place by place.
std::optional<std::string> check_plan(const StepProfile& profile,
                                      const BudgetPlan& plan,
                                      Bytes budget);

}  // namespace spillway
