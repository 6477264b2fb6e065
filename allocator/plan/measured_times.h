// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/plan/step_times.h"

#include <optional>
#include <utility>
#include <vector>

namespace spillway {

/// Compute times of a step: first from its recording, then from steps that follow plans of it. The
/// host delays the recorded step, and steps in which memory is mapped. After such a pause the
/// device also computes faster than under load, when its clocks are lower. Accepted times are
/// therefore the median of several consecutive undelayed steps, never the shortest times.
///
/// Pure. Threads: confined.
class MeasuredTimes {
 public:
  explicit MeasuredTimes(StepTimes recorded) : believed_(std::move(recorded)) {}

  [[nodiscard]] const StepTimes& believed() const { return believed_; }

  /// Whether further steps must be measured.
  [[nodiscard]] bool wanted() const { return !done_; }

  /// Adds a step that followed a plan. `stalled`: its host delayed it. True if the accepted times
  /// have changed, so that a new plan is needed.
  bool saw(const StepTimes& times, bool stalled);

 private:
  bool accept(const std::vector<StepTimes>& seen);
  [[nodiscard]] bool deviates(const StepTimes& now, const std::vector<StepTimes>& seen) const;

  StepTimes believed_;
  std::vector<StepTimes> seen_;       // consecutive undelayed steps
  std::optional<StepTimes> fastest_;  // of all steps, until a median is accepted
  int stalled_ = 0;                   // consecutive stalled steps
  int steps_ = 0;
  int rounds_ = 0;
  bool done_ = false;
};

}  // namespace spillway
