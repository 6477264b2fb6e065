// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/device/step_peaks.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace spillway {

/// Why offloading does not lower a process's peak. The values are part of StatsPageLayout.
enum class HelplessReason : std::uint32_t {
  kNone,
  kOptimizer,       // the optimizer step reaches the peak; bytes: the peak
  kEvaluation,      // the peak is outside of training steps; bytes: the peak
  kOperator,        // an operator of the forward or backward pass reaches it; bytes: its allocation
  kCompiledGraph,   // a torch.compile graph reaches it; bytes: the peak
  kOtherOffloader,  // other saved-tensor hooks receive the saved tensors
  kModelState,  // parameters, gradients and optimizer states exceed the budget; bytes: the excess
  kCount,
};
/// The reason's name in spillway.stats() and the run log; empty for kNone.
std::string_view helpless_reason_name(HelplessReason reason);

struct CannotHelp {
  HelplessReason reason = HelplessReason::kNone;
  DeviceId device{};
  Bytes bytes;
};

/// Measurements of one device in one step, up to the end of its optimizer step.
struct StepFacts {
  StepPeaks::Peaks peaks;        // of all steps
  Bytes offloaded;               // offloaded in the step
  Bytes left_to_recompute;       // left to recompute in the step
  bool saved_elsewhere = false;  // other hooks received saved tensors in the step
  bool compiled = false;         // torch.compile has created a graph
};

/// Why the step's offloading did not lower the peak. None if it did, or if nothing was offloaded.
/// Bytes left to recompute count as allocated without Spillway at any time. The answer is therefore
/// never that the peak is unchanged when it may be lower.
std::optional<CannotHelp> why_peak_is_not_lowered(DeviceId device, const StepFacts& step);

/// Counts steps with the same answer.
///
/// Threads: confined.
class HelplessSteps {
 public:
  /// Consecutive steps with the same reason before the first answer.
  static constexpr int kSteps = 3;

  /// The answer after a step with the result `found`.
  CannotHelp after(const std::optional<CannotHelp>& found);

  /// Withdraws the last answer. The next one takes four times as many steps.
  void withdraw();

 private:
  HelplessReason last_ = HelplessReason::kNone;
  int times_ = 0;
  int needed_ = kSteps;
};

/// The highest of a device's peaks.
const StepPeaks::Peak& highest(const StepPeaks::Peaks& peaks);

/// For a job that keeps its activations because offloading did not lower its peak of `before`
/// bytes. Whether recent steps still reach about that peak in the same phase.
bool needs_no_offloading(HelplessReason reason, Bytes before, const StepPeaks::Peaks& recent);

}  // namespace spillway
