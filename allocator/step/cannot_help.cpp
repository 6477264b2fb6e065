// SPDX-License-Identifier: Apache-2.0
#include "allocator/step/cannot_help.h"

#include <algorithm>

namespace spillway {
namespace {

/// Within forward and backward passes, storages are offloaded and fetched continually. A peak
/// counts as unchanged if the difference is below this share, and below a fraction of the offloaded
/// bytes.
constexpr std::uint64_t kAlike = 32;
constexpr std::uint64_t kWorthIt = 4;

HelplessReason reason_in(StepPhase phase, const StepFacts& step) {
  switch (phase) {
    case StepPhase::kOptimizer:
      return HelplessReason::kOptimizer;
    case StepPhase::kOutside:
      // The first compiled graph of a step saves its tensors only at its end, so the step begins
      // there.
      return step.compiled ? HelplessReason::kCompiledGraph : HelplessReason::kEvaluation;
    default:
      break;
  }
  if (step.saved_elsewhere) return HelplessReason::kOtherOffloader;
  return step.compiled ? HelplessReason::kCompiledGraph : HelplessReason::kOperator;
}

}  // namespace

std::string_view helpless_reason_name(HelplessReason reason) {
  switch (reason) {
    case HelplessReason::kOptimizer:
      return "optimizer";
    case HelplessReason::kEvaluation:
      return "evaluation";
    case HelplessReason::kOperator:
      return "operator";
    case HelplessReason::kCompiledGraph:
      return "compiled_graph";
    case HelplessReason::kOtherOffloader:
      return "other_offloader";
    case HelplessReason::kModelState:
      return "model_state";
    case HelplessReason::kNone:
    case HelplessReason::kCount:
      break;
  }
  return {};
}

std::optional<CannotHelp> why_peak_is_not_lowered(DeviceId device, const StepFacts& step) {
  if (step.offloaded.zero()) return std::nullopt;
  std::size_t highest = 0;
  Bytes without;
  for (std::size_t phase = 0; phase < step.peaks.size(); ++phase) {
    const StepPeaks::Peak& peak = step.peaks.at(phase);
    if (peak.allocated > step.peaks.at(highest).allocated) highest = phase;
    const bool saves = phase == static_cast<std::size_t>(StepPhase::kForward) ||
                       phase == static_cast<std::size_t>(StepPhase::kBackward);
    without = std::max(without, peak.without + (saves ? step.left_to_recompute : Bytes{}));
  }
  const auto phase = static_cast<StepPhase>(highest);
  const StepPeaks::Peak& peak = step.peaks.at(highest);
  const Bytes lowered = saturating_sub(without, peak.allocated);
  const bool between = phase == StepPhase::kOptimizer || phase == StepPhase::kOutside;
  const bool alike = between ? lowered.zero()
                             : lowered.count() <= peak.allocated.count() / kAlike &&
                                   lowered.count() <= step.offloaded.count() / kWorthIt;
  // Peaks of another allocator are unknown.
  if (!alike || peak.allocated.zero()) return std::nullopt;
  const HelplessReason reason = reason_in(phase, step);
  return CannotHelp{
      reason, device, reason == HelplessReason::kOperator ? peak.largest : peak.allocated};
}

CannotHelp HelplessSteps::after(const std::optional<CannotHelp>& found) {
  const HelplessReason reason = found ? found->reason : HelplessReason::kNone;
  times_ = reason == last_ ? std::min(times_ + 1, needed_) : 1;
  last_ = reason;
  return found && times_ >= needed_ ? *found : CannotHelp{};
}

void HelplessSteps::withdraw() {
  constexpr int kMax = 1 << 20;
  last_ = HelplessReason::kNone;
  times_ = 0;
  needed_ = std::min(4 * needed_, kMax);
}

const StepPeaks::Peak& highest(const StepPeaks::Peaks& peaks) {
  return *std::max_element(peaks.begin(), peaks.end(), [](const auto& left, const auto& right) {
    return left.allocated < right.allocated;
  });
}

bool needs_no_offloading(HelplessReason reason, Bytes before, const StepPeaks::Peaks& recent) {
  const StepPeaks::Peak& peak = highest(recent);
  const Bytes apart{before.count() / (kAlike / 2)};
  if (peak.allocated > before + apart || peak.allocated + apart < before) return false;
  const auto in = [&](StepPhase phase) {
    return &recent.at(static_cast<std::size_t>(phase));
  };
  if (reason == HelplessReason::kOptimizer) return &peak == in(StepPhase::kOptimizer);
  if (reason == HelplessReason::kEvaluation) return &peak == in(StepPhase::kOutside);
  return true;
}

}  // namespace spillway
