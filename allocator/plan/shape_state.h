// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace spillway {

/// What is known of a sequence of storages, from its first step to one that plans fit.
///
///     kNew ─fitted→ kFits;  kNew, kFits ─pressed→ kPressed ─recorded→ kSettled
///     kNew ─recorded→ kRecorded ─recorded, or a step began alike→ kSettled
///     kRecorded ─adjusted→ kAdjusted ─followed→ kCorrected
///     kImported ─ended→ kSettled
///     kNew, kRecorded ─exceeded→ kNew;  any other ─exceeded→ kBudgetExceeded
///     any but kNew ─recorded→ kSettled
///
/// The first training step allocates memory that later steps already find, so a first recording may
/// describe a step that began with less. Steps in kImported, kAdjusted, kCorrected and kSettled are
/// planned.
enum class ShapeState : std::uint8_t {
  kNew,        // no usable recording: the next step is recorded
  kFits,       // fits with everything kept: steps need no plan
  kPressed,    // did not fit with everything kept: the next step is recorded
  kRecorded,   // recorded once; the bytes at its beginning are unconfirmed
  kImported,   // recorded by another run; no step of this run has ended
  kAdjusted,   // the recording was converted to a larger beginning; no step has followed its plan
  kCorrected,  // a step has followed a plan of the adjusted recording, and has corrected it
  kSettled,    // recorded, and steps begin as recorded
  kBudgetExceeded,  // a step exceeded the budget: the next one is recorded
};

enum class ShapeEvent : std::uint8_t {
  kFitted,      // an unplanned step ended in which everything was kept
  kPressed,     // likewise, but there was no room for it
  kRecorded,    // a step ended in which everything was offloaded or recomputed
  kBeganAlike,  // a step began with the allocated bytes of the recording
  kAdjusted,    // the recording was converted, because another recording would exceed the budget
  kEnded,       // a step of this run ended
  kFollowed,    // a step ended that followed its plan within the budget
  kExceeded,    // a step exceeded the budget, and the recording was dropped
};

/// The only way in which a shape's state changes.
[[nodiscard]] constexpr ShapeState transition(ShapeState state, ShapeEvent event) {
  using State = ShapeState;
  switch (event) {
    case ShapeEvent::kFitted:
      return state == State::kNew ? State::kFits : state;
    case ShapeEvent::kPressed:
      return state == State::kNew || state == State::kFits ? State::kPressed : state;
    case ShapeEvent::kRecorded:
      return state == State::kNew ? State::kRecorded : State::kSettled;
    case ShapeEvent::kBeganAlike:
      return state == State::kRecorded ? State::kSettled : state;
    case ShapeEvent::kAdjusted:
      return state == State::kRecorded ? State::kAdjusted : state;
    case ShapeEvent::kEnded:
      return state == State::kImported ? State::kSettled : state;
    case ShapeEvent::kFollowed:
      return state == State::kAdjusted ? State::kCorrected : state;
    case ShapeEvent::kExceeded:
      return state == State::kNew || state == State::kFits || state == State::kRecorded
                 ? State::kNew
                 : State::kBudgetExceeded;
  }
  return state;
}

/// Whether a shape in that state has a recording.
[[nodiscard]] constexpr bool has_recording(ShapeState state) {
  return state != ShapeState::kNew && state != ShapeState::kFits && state != ShapeState::kPressed &&
         state != ShapeState::kBudgetExceeded;
}

/// Whether the recording was converted to a larger beginning.
[[nodiscard]] constexpr bool is_adjusted(ShapeState state) {
  return state == ShapeState::kAdjusted || state == ShapeState::kCorrected;
}

}  // namespace spillway
