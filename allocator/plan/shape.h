// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/plan/known_step.h"
#include "allocator/plan/measured_times.h"
#include "allocator/plan/plan_request.h"
#include "allocator/plan/reserved_margin.h"
#include "allocator/plan/shape_state.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace spillway {

/// A plan that a step followed. Its profile begins with RecordedStep::begin allocated bytes. If the
/// step began with more, the plan's budget is smaller by the difference.
struct PlannedStep {
  StepProfile profile;
  BudgetPlan plan;
  Bytes budget;     // for the profile
  Bytes allocated;  // allocated when the step began
  PredictedReserved foreseen;
  Bytes beside;  // beyond `budget`: left to model state
  /// Duration on the device of steps that followed it, from the first saved storage to the end of
  /// the backward pass. The median of the last ones; none while unknown.
  std::optional<double> seconds;
};

/// How a step ended, for the shape that it had.
struct EndedStep {
  const StepCurve& curve;
  bool fully_offloaded = false;  // every storage was offloaded or recomputed
  bool exceeded = false;         // the step exceeded the budget
  bool pressed = false;          // storages were offloaded because the device had no room
  Bytes over{};  // bytes above the budget, plus an allowance for a different heap layout
  Bytes budget{};
  Bytes reserved_following_plan{};  // peak that similar steps will reach again; zero if unknown
  Bytes missing{};                  // of the budget, for the addresses of such steps
};

/// One sequence of storages of a step: their sizes, and whether each can be recomputed. Holds its
/// recording and its plan. ShapeState names which of them exist. A BudgetChooser forgets the least
/// recently used shape when it has too many.
/// Threads: confined.
class Shape {
 public:
  Shape(std::uint64_t id, std::vector<Bytes> sizes, std::vector<bool> recomputable);
  /// A sequence that another run has recorded. Requires: check_known(step) is ok.
  Shape(std::uint64_t id, KnownStep step);

  /// Never reused within a BudgetChooser.
  [[nodiscard]] std::uint64_t id() const { return id_; }

  [[nodiscard]] const std::vector<Bytes>& sizes() const { return sizes_; }

  [[nodiscard]] const std::vector<bool>& recomputable() const { return recomputable_; }

  [[nodiscard]] bool matches(std::size_t index, Bytes size, bool recomputable) const {
    return index < sizes_.size() && sizes_[index] == size && recomputable_[index] == recomputable;
  }

  /// Call when a step that may have this shape begins, with its allocated bytes.
  void begin(Bytes allocated, const PlanTerms& terms);
  /// What is needed for the running step's plan; none if there is one, or none can be made.
  std::optional<PlanRequest> request(const PlanTerms& terms);
  /// Takes a request's result, unless the shape has changed since.
  void adopt(PlanRequest&& done);

  /// The plan for the running step, or the last one; null if it must be recorded. A plan made for a
  /// larger beginning is valid too.
  [[nodiscard]] const BudgetPlan* plan() const;
  /// The storages whose fetch begins at the first use of that one.
  [[nodiscard]] std::vector<std::size_t> due_with(std::size_t index) const;
  /// Whether no plan needs less than plan(). Requires: there is one.
  [[nodiscard]] bool has_least_plan() const;
  /// Peak of a step that follows plan(). Requires: there is one.
  [[nodiscard]] Bytes planned_peak() const;

  /// Bytes of the budget that plan() leaves to model state. Requires: there is one.
  [[nodiscard]] Bytes beside() const { return planned_->beside; }

  /// What leaves of the model state by plan(). Requires: there is one.
  [[nodiscard]] const std::vector<ModelStateLeave>& model_state() const {
    return planned_->plan.model_state;
  }

  /// Predicted reserved bytes of a step that follows the latest plan; zero before the first.
  [[nodiscard]] Bytes predicted_reserved() const { return predicted_reserved_; }

  /// Bytes that planned steps have needed beyond the budget.
  [[nodiscard]] Bytes margin() const { return margin_; }

  /// Whether a step of this shape fits with everything kept, as far as is known.
  [[nodiscard]] bool fits() const { return state_ == ShapeState::kFits; }

  /// The first step of this shape has ended, with everything kept as far as there was room.
  void kept(bool pressed) { on(pressed ? ShapeEvent::kPressed : ShapeEvent::kFitted); }

  /// Ends a step of this shape. Returns true if the step was recorded. The caller then passes its
  /// times to time().
  bool end(const EndedStep& step);
  /// Replaces the recording by the step's.
  void record(const StepCurve& curve);
  /// Drops the plan, because its terms changed. drop_profile() drops the profile too.
  void drop_plan();
  void drop_profile();

  /// Sets the times of the recorded step.
  void time(const StepTimes& times);
  /// Refines them by a step that followed the plan, as MeasuredTimes::saw.
  void refine(const StepTimes& times, bool stalled);
  /// Whether steps that follow the plan are to be timed.
  [[nodiscard]] bool needs_times() const;

  /// Number of different plans so far.
  [[nodiscard]] std::uint64_t plans() const { return plans_; }

  /// Adds the duration, in seconds, of a step that followed the current plan. If the plan before it
  /// was faster, goes back to that one and measures no more. Call it between steps.
  void add_step_duration(double seconds);
  /// None without a plan with times.
  [[nodiscard]] std::optional<PlannedStep> planned(const PredictedReserved& foreseen) const;
  /// None if there is no recording that can be planned.
  [[nodiscard]] std::optional<KnownStep> known() const;

  /// Number of changes of the recording.
  [[nodiscard]] std::uint64_t records() const { return records_; }

  /// Step counter of the BudgetChooser at the last use.
  std::uint64_t last_used = 0;

 private:
  struct Planned {
    BudgetPlan plan;
    std::vector<std::vector<std::size_t>> due;
    Bytes begin;   // allocated bytes that it was made for
    Bytes budget;  // of the profile, including the reserved margin
    Bytes beside;  // beyond that: left to model state
    ModelStateTerms model_state;

    /// Whether the terms' model state is about as large as when it was made.
    [[nodiscard]] bool suits(const PlanTerms& terms) const;
  };

  /// The fastest plan before the current one, which has replaced it because other times were
  /// measured or its steps had no room for their addresses, and the duration of its fastest step.
  struct Replaced {
    Planned planned;
    double seconds = 0;
    bool has_missing = false;  // its steps had no room
  };

  void on(ShapeEvent event) { state_ = transition(state_, event); }

  void drop_recording();
  /// Drops the plan for another one, and keeps the fastest one that steps have followed, to go
  /// back.
  void replace_plan(bool has_missing);
  /// The latest plan of the present recording; null if there is none.
  [[nodiscard]] const BudgetPlan* last_plan() const;
  /// The first step that followed a plan of an adjusted recording: corrects it. True if the step
  /// needed less than planned.
  bool correct(const StepCurve& curve);

  const std::uint64_t id_;
  const std::vector<Bytes> sizes_;
  const std::vector<bool> recomputable_;
  ShapeState state_ = ShapeState::kNew;
  std::optional<RecordedStep> recorded_{};        // in states that have_recording()
  std::optional<MeasuredTimes> times_{};          // of the recording
  std::shared_ptr<const StepProfile> profile_{};  // of both; null until a plan needs it
  std::optional<Planned> planned_{};              // made from the profile
  std::optional<BudgetPlan> before_{};            // followed until the times changed
  std::optional<Replaced> replaced_{};            // until the plan after it has been tried
  std::uint64_t version_ = 0;                     // changes with the four above and the margins
  // Of the last plan that did not fit: the version then, and the bytes allocated at the beginning.
  std::optional<std::pair<std::uint64_t, Bytes>> rejected_{};
  Bytes begins_with_{};  // allocated when the running step began
  Bytes predicted_reserved_{};
  Bytes margin_{};
  ReservedMargin reserved_margin_{};
  bool keeps_missing_ = false;    // a plan that leaves what is missing was slower
  std::deque<double> seconds_{};  // durations of the last steps that followed the plan
  std::uint64_t plans_ = 0;
  std::uint64_t records_ = 0;
};

}  // namespace spillway
