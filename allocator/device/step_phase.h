// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace spillway {

/// Where a process is in its training step.
///
///     kOutside, kOptimizer ─saved→ kForward ─unpacked→ kBackward ─ended→ kOptimizer
///     kForward ─ended→ kOutside (it had no backward pass)
///     any ─stepped→ kOutside
///
/// From kOptimizer, kForward is another micro-batch, or the next step of a program whose optimizer
/// is not observed.
enum class StepPhase : std::uint8_t {
  kForward,    // saved tensors are created
  kBackward,   // saved tensors are used
  kOptimizer,  // from the end of the backward pass to the end of the optimizer step, or to the next
               // saved tensor
  kOutside,    // between steps, as in an evaluation
  kCount,
};

enum class StepEvent : std::uint8_t {
  kSaved,     // a saved-tensor handle was created
  kUnpacked,  // a saved tensor was used
  kEnded,     // the saved tensors of the step are released
  kStepped,   // the step is over
};

/// The only way in which the phase changes.
[[nodiscard]] constexpr StepPhase transition(StepPhase phase, StepEvent event) {
  switch (event) {
    case StepEvent::kSaved:
      return phase == StepPhase::kBackward ? phase : StepPhase::kForward;
    case StepEvent::kUnpacked:
      return StepPhase::kBackward;
    case StepEvent::kEnded:
      return phase == StepPhase::kForward    ? StepPhase::kOutside
             : phase == StepPhase::kBackward ? StepPhase::kOptimizer
                                             : phase;
    case StepEvent::kStepped:
      return StepPhase::kOutside;
  }
  return phase;
}

/// Whether saved tensors of the step exist, or may still be created.
[[nodiscard]] constexpr bool has_saved(StepPhase phase) {
  return phase == StepPhase::kForward || phase == StepPhase::kBackward;
}

/// Why a step ends. The saved tensors of a micro-batch end with the first two, which begin the
/// optimizer phase of budgets. The others end that phase too.
enum class StepEnd : std::uint8_t {
  kHandlesReleased,   // the last saved-tensor handle, after the backward pass or outside regions
  kRegionsLeft,       // the last region, without a handle
  kNextBegins,        // the next step of a tag with a budget
  kOptimizerStepped,  // the hook of an optimizer
  kRequested,         // the program
};

/// Whether it is known that no optimizer step of this step follows.
[[nodiscard]] constexpr bool ends_optimizer_step(StepEnd reason) {
  return reason == StepEnd::kOptimizerStepped || reason == StepEnd::kRequested;
}

}  // namespace spillway
