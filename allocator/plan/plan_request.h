// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/plan/budget_plan.h"
#include "allocator/plan/recorded_step.h"
#include "allocator/plan/reserved_margin.h"
#include "allocator/plan/shared_room.h"
#include "allocator/plan/step_times.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace spillway {

/// What the plans of all of a device's shapes depend on.
struct PlanTerms {
  Bytes budget;
  double slowdown = 0;  // as in Budget
  PredictedReserved foreseen{};
  bool free_at_once = false;  // as in StepProfile
  ModelStateTerms model_state{};
};

/// A snapshot from which a plan is made without the lock of its shape.
/// Threads: confined.
struct PlanRequest {
  /// Makes the profile, if it is missing, then the plan. Takes milliseconds. It is `before` unless
  /// another one is predicted to be faster by a percent: the first steps that follow another
  /// plan map memory.
  void run();

  std::uint64_t shape = 0;    // Shape::id
  std::uint64_t version = 0;  // of the shape; a result for another version is discarded
  PlanTerms terms;
  Bytes allocated;  // when the step began
  Bytes allowed;    // budget of the profile, including `margin`
  Bytes margin;     // left free of `allowed`
  std::vector<Bytes> sizes;
  std::shared_ptr<const StepProfile> profile;  // null: made of the next three
  std::vector<bool> recomputable;              // by storage
  RecordedStep recorded;
  std::optional<StepTimes> times;
  std::optional<BudgetPlan> before;  // of the same recording; steps have followed it

  // The result of run().
  BudgetPlan plan;
  /// By storage: the storages whose fetch begins at its first use.
  std::vector<std::vector<std::size_t>> due;
};

}  // namespace spillway
