// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/runtime/step_peaks.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace spillway {

/// Why offloading does not lower the peak of a process. The numbers are part of StatsPageLayout.
enum class HelplessReason : std::uint32_t {
  kNone,
  kOptimizer,       // the peak is reached in the optimizer's step; bytes: the peak
  kEvaluation,      // outside of training steps; bytes: the peak
  kOperator,        // in an operator of the forward or backward pass; bytes: of its allocation
  kCompiledGraph,   // in a graph of torch.compile; bytes: the peak
  kOtherOffloader,  // other saved-tensor hooks get what is saved
  kModelState,  // parameters, gradients and optimizer states exceed the budget; bytes: by how much
  kCount,
};
/// As spillway.stats() and the log of a run name it; empty for kNone.
std::string_view helpless_reason_name(HelplessReason reason);

struct CannotHelp {
  HelplessReason reason = HelplessReason::kNone;
  DeviceId device{};
  Bytes bytes;
};

/// One device in one step, up to the end of its optimizer's step.
struct StepFacts {
  StepPeaks::Peaks peaks;        // of all steps
  Bytes offloaded;               // in the step
  Bytes left_to_recompute;       // in the step
  bool saved_elsewhere = false;  // other hooks got saved tensors in the step
  bool compiled = false;         // torch.compile has made a graph
};

/// Why the peak was not lowered by what the step offloaded; none where it was, or where nothing
/// was offloaded. What was left to recompute counts as allocated without Spillway at any time, so
/// that a peak is not said to be the same when it may be lower.
std::optional<CannotHelp> why_peak_is_not_lowered(DeviceId device, const StepFacts& step);

/// Counts steps with the same answer.
///
/// Threads: confined.
class HelplessSteps {
 public:
  /// This many steps in a row with the same reason make the first answer.
  static constexpr int kSteps = 3;

  /// The answer after a step for which `found` was.
  CannotHelp after(const std::optional<CannotHelp>& found);

  /// The last answer no longer holds. The next one takes four times as many steps.
  void withdraw();

 private:
  HelplessReason last_ = HelplessReason::kNone;
  int times_ = 0;
  int needed_ = kSteps;
};

/// The highest of a device's peaks.
const StepPeaks::Peak& highest(const StepPeaks::Peaks& peaks);

/// Whether a job whose activations stay on the GPU, since offloading did not lower a peak of
/// `before` bytes for that reason, still reaches about that peak in recent steps, in its place.
bool needs_no_offloading(HelplessReason reason, Bytes before, const StepPeaks::Peaks& recent);

}  // namespace spillway
