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

/// Predicted times of a step, in seconds; stalls are times for which compute waits.
struct StepTiming {
  double compute = 0;
  double recompute = 0;
  double stall_out = 0;  // for memory whose copy out is unfinished
  double stall_in = 0;   // for candidates whose fetch is unfinished

  [[nodiscard]] double total() const { return compute + recompute + stall_out + stall_in; }
};

/// A storage of the model state that is offloaded while it is not used (JointStep).
struct ModelStateLeave {
  std::uint64_t storage = 0;  // as in StepCurve::ModelStateUses
  std::size_t after = 0;  // the number of its uses in the step by then; zero: after the last one
  std::size_t fetch = 0;  // the event at whose beginning its fetch starts

  bool operator==(const ModelStateLeave&) const = default;
};

/// The action for each candidate of a step. All vectors are indexed by candidate.
struct BudgetPlan {
  std::vector<Action> actions{};
  /// For offloaded candidates: the event at whose beginning the fetch starts, at the latest the
  /// event of first use.
  std::vector<std::size_t> fetch{};
  std::vector<std::size_t> first_use{};  // as first_uses
  Bytes budget{};                        // that the plan was made for
  Bytes peak{};                          // peak bytes of the step
  // peak bytes with everything offloaded or recomputed that can be
  Bytes least{};
  std::vector<ModelStateLeave> model_state{};  // what leaves of the model state beside it
  StepTiming timing{};                         // predicted; zero if the profile has no times

  [[nodiscard]] std::uint64_t bytes(const StepProfile& profile, Action action) const;
};

/// Allocated bytes at each event under those actions. Fetches of offloaded candidates start at
/// `fetch`, or at first use if that is empty.
std::vector<std::uint64_t> allocated_bytes(const StepProfile& profile,
                                           const std::vector<Action>& actions,
                                           const std::vector<std::size_t>& fetch = {});

/// Why the plan is invalid for a step with `budget`; none if it is valid. Verifies the whole plan
/// event by event.
std::optional<std::string> check_plan(const StepProfile& profile,
                                      const BudgetPlan& plan,
                                      Bytes budget);

}  // namespace spillway
