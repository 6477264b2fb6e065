// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/plan/budget_plan.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway {

/// A step and the model state that streams beside it, as one step to plan. A storage of the model
/// state is idle between two uses of the step, and from the last use of a step to the first one of
/// the next step. Each such time is a candidate after those of the step. It is copied out only if
/// its uses change it.
class JointStep {
 public:
  explicit JointStep(const StepProfile& step);

  [[nodiscard]] const StepProfile& profile() const { return profile_; }

  /// Bytes of that model state. They are part of the profile's peaks.
  [[nodiscard]] Bytes model_state() const { return model_state_; }

  /// The step's part of a plan for both.
  [[nodiscard]] BudgetPlan split(BudgetPlan joint) const;
  /// The plan for both of which split() has made that one.
  [[nodiscard]] BudgetPlan join(BudgetPlan plan) const;

 private:
  /// When a storage is idle: as in ModelStateLeave.
  struct Idle {
    std::uint64_t storage;
    std::size_t after;
  };

  void add(const StepCurve::ModelStateUses& uses, std::size_t after, std::vector<Window> windows);
  /// The most allocated bytes of a step that follows the plan.
  [[nodiscard]] static Bytes peak_of(const StepProfile& profile, const BudgetPlan& plan);

  const StepProfile& step_;
  StepProfile profile_;
  std::vector<Idle> idle_{};  // by candidate, after those of the step
  Bytes model_state_;
};

}  // namespace spillway
