// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/plan/step_times.h"

#include <optional>
#include <utility>
#include <vector>

namespace spillway {

/// What computing a recorded step takes: first as it was recorded, then as it is in steps that
/// follow plans of it. The recorded one is held up by its host, and so are those in which memory is
/// mapped. A device that has paused for that also computes faster than it does under load, when its
/// clocks have come down: so what is believed is the median of some steps in a row that nothing
/// has held up, and no shortest times.
///
/// Pure. Threads: confined.
class MeasuredTimes {
 public:
  explicit MeasuredTimes(StepTimes recorded) : believed_(std::move(recorded)) {}

  [[nodiscard]] const StepTimes& believed() const { return believed_; }

  /// Whether steps are to be measured still.
  [[nodiscard]] bool wanted() const { return !done_; }

  /// A step that followed a plan. `stalled`: by its host. True where something else is believed
  /// now, so that a plan is to be made of it.
  bool saw(const StepTimes& times, bool stalled);

 private:
  bool believe(const std::vector<StepTimes>& seen);
  [[nodiscard]] bool deviates(const StepTimes& now, const std::vector<StepTimes>& seen) const;

  StepTimes believed_;
  std::vector<StepTimes> seen_;        // in a row, held up by nothing
  std::optional<StepTimes> quickest_;  // of all, until a median is believed
  int stalled_ = 0;                    // in a row
  int steps_ = 0;
  int rounds_ = 0;
  bool done_ = false;
};

}  // namespace spillway
