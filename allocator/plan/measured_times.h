// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/plan/step_times.h"

#include <utility>
#include <vector>

namespace spillway {

/// Compute times of a step: first from its recording, then from steps that follow plans made from
/// it. A stalled step is one that its host delayed. The recorded step is stalled, and so is each
/// step that maps memory. An idle device then runs at higher clocks than under sustained load, so
/// such steps may also be too fast.
///
/// Accepted times are therefore the median of three consecutive steps that were not stalled. The
/// median is accepted if it deviates from the accepted times by more than 1 %. It must also
/// deviate by more than it does from the nearer of the other two steps. Measuring ends with the
/// first median that is not accepted, after six accepted ones, or after 64 steps.
///
/// A recorded step may be delayed throughout, and some jobs stall in most steps. Until the first
/// median, a step is therefore accepted at once if it takes less than 99 % of the accepted times,
/// stalled or not: delays only add time. The first median corrects one that was too fast; a job
/// without three such steps in a row keeps its fastest one.
///
/// Pure. Threads: confined.
class MeasuredTimes {
 public:
  explicit MeasuredTimes(StepTimes recorded) : believed_(std::move(recorded)) {}

  /// The accepted times; at first those of the recording.
  [[nodiscard]] const StepTimes& believed() const { return believed_; }

  /// Whether further steps must be measured.
  [[nodiscard]] bool needed() const { return !done_; }

  /// Ends the measuring.
  void stop() { done_ = true; }

  /// Adds a step that followed a plan. `stalled`: its host delayed it. Returns true if the accepted
  /// times have changed, so that a new plan is needed.
  bool saw(const StepTimes& times, bool stalled);

 private:
  bool accept(const std::vector<StepTimes>& seen);
  /// Whether `now`, the median of `seen`, deviates enough from the accepted times.
  [[nodiscard]] bool deviates(const StepTimes& now, const std::vector<StepTimes>& seen) const;

  StepTimes believed_;           // accepted
  std::vector<StepTimes> seen_;  // consecutive steps that were not stalled
  int steps_ = 0;                // measured steps
  int rounds_ = 0;               // accepted medians
  bool done_ = false;
};

}  // namespace spillway
