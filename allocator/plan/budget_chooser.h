// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"
#include "allocator/plan/budget_plan.h"
#include "allocator/plan/known_step.h"
#include "allocator/plan/measured_times.h"
#include "allocator/plan/recompute_trial.h"
#include "allocator/plan/reserved_margin.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <vector>

namespace spillway {

/// What a budget would have had to be.
struct BudgetShortage {
  Bytes least;
  Bytes begin;  // allocated when the step began
  /// A later step may need more: nothing is known yet of an optimizer's step after this one, or
  /// after one that began with the same bytes live.
  bool lower_bound = false;
};

/// A plan that was followed. Its profile begins with `begin` bytes live; budgets for it are those
/// of the step, less what the step began with beyond that.
struct PlannedStep {
  StepProfile profile;
  BudgetPlan plan;
  Bytes budget;  // of the profile
  Bytes live;    // when the step began
  PredictedReserved foreseen;
  /// What steps that followed it take on the device, from the first saved storage to the end of
  /// the backward pass: the median of the last ones; none where that is not known yet.
  std::optional<double> seconds;
};

/// Chooses which of a step's offloadable storages move, so that one device needs at most a budget.
/// Pure: no clock, no CUDA.
///
/// A sequence of sizes that is new is recorded: everything is offloaded, recomputed where it
/// can be and moved otherwise. Steps in which recomputing would take too much room offload instead
/// (RecomputeTrial). A known one follows the plan made from its recording (plan_step), for what is
/// live when it begins. While a step may still become several known ones, what any of them moves is
/// moved. From the first difference to all of them on, everything is offloaded, and the next step
/// of that sequence is recorded. So is one that begins with other bytes live than when it was first
/// recorded, once: the first step of a training allocates what the later ones find. The recorded
/// step is held up by its host (memory is mapped, kernels are loaded), so the first planned steps
/// are measured too (MeasuredTimes); a plan is made of it where that matters.
///
/// Threads: confined; the runtime holds its lock.
class BudgetChooser {
 public:
  /// `slowdown`: as in Budget.
  explicit BudgetChooser(Bytes budget, double slowdown = 0)
      : budget_(budget), slowdown_(slowdown), recompute_trial_(budget) {}

  [[nodiscard]] Bytes budget() const { return budget_; }

  /// What becomes of the next offloadable storage of this step. `live`: when the step began.
  /// `recomputable`: it can be recomputed instead.
  Action choose(Bytes size, Bytes live, bool recomputable = false);

  /// The storages that are to begin to be fetched when that one of this step is wanted.
  [[nodiscard]] std::vector<std::size_t> due_with(std::size_t index) const;

  /// So far this step is, or may become, one whose times are wanted.
  [[nodiscard]] bool recording() const;
  /// The times of the step that ended last, if they were wanted; none where they are not known.
  void time(const std::optional<StepTimes>& times);
  /// What a step took that ended `steps_ago` steps of the device before the last one: hosts run
  /// ahead of their device. Ignored where that step followed no plan to its end, or the plan has
  /// been replaced.
  void took(double seconds, std::size_t steps_ago = 0);

  /// The step that ended last on the device was another chooser's.
  void ended_elsewhere() {
    followed_last_ = nullptr;
    note_followed(nullptr);
  }

  /// What has been recorded and can be planned with, and how often that has changed.
  [[nodiscard]] std::vector<KnownStep> known() const;

  [[nodiscard]] std::uint64_t records() const { return records_; }

  /// Steps whose times were taken, after which their host has waited for the device.
  [[nodiscard]] std::uint64_t timed() const { return timed_; }

  /// Plans with what was recorded elsewhere; what is known already stays as it is. Errors:
  /// kInvalidArgument for what no step can have recorded.
  Status learn(KnownStep step);

  /// The storage with that index could not be moved: this step records nothing.
  void not_moved() {
    whole_ = false;
    refused_ = true;
  }

  /// The step that is to end was one of those in which memory found its pieces again: its host has
  /// held it up.
  void unsettled() { settled_ = false; }

  /// The device's memory can be handed out as soon as its copy out has been queued
  /// (StepProfile::free_at_once).
  void frees_at_once();

  /// Of the device's memory, as the step begins.
  void foresee(const PredictedReserved& held) { foreseen_ = held; }

  /// What the device held at the peak of the step that is to end, and will again in steps like
  /// that. Where a planned one held more than the budget, plans are made for this much less, and a
  /// little.
  void held(Bytes most) { held_ = most; }

  /// The most bytes that the device has reserved in the step that is to end, as far as that is to
  /// stay within the budget; budgets of `fewest` bytes and more count them, smaller ones what is
  /// allocated.
  void reserved(Bytes most, Bytes fewest) {
    reserved_ = most;
    fewest_reserved_ = fewest;
  }

  /// Its memory has no places within the budget for steps like the one that is to end: plans are
  /// made for this much less.
  void lacks(Bytes bytes) { lacking_ = bytes; }

  /// Whether the step that is to end has exceeded the budget: with this many bytes allocated at its
  /// peak, or by what was reserved.
  [[nodiscard]] bool exceeds(Bytes peak) const;

  /// What the step that is to end needed, and began with, where it has exceeded the budget.
  [[nodiscard]] std::optional<BudgetShortage> excess(const StepCurve& curve) const;

  /// What is missing where the step, so far, has exceeded the budget although everything was
  /// offloaded, or a plan was followed that needs as little as any, and no other plan would need
  /// less. What is foreseen alone is no shortage, nor is fragmentation, within limits, where what
  /// is allocated fits.
  [[nodiscard]] std::optional<BudgetShortage> shortage(const StepCurve& curve) const;
  /// Closes the step; `optimized`: with the optimizer's step. As shortage().
  std::optional<BudgetShortage> end_step(const StepCurve& curve, bool optimized = false);

  /// How many steps have ended with an optimizer's.
  [[nodiscard]] std::uint64_t optimized_steps() const { return optimized_steps_; }

  /// Closes a step that had no backward pass.
  void abandon_step();

  [[nodiscard]] std::size_t seen() const { return sizes_.size(); }

  /// What steps that follow the last plans are thought to hold at most; zero without a plan.
  [[nodiscard]] Bytes reserved_following_plans() const;

  /// This step is, so far, one that is known.
  [[nodiscard]] bool planned() const { return !candidates_.empty(); }

  /// The plan of the last step that had one with times.
  [[nodiscard]] std::optional<PlannedStep> planned_last() const;

  /// Steps that began as a known one and were none.
  [[nodiscard]] std::uint64_t mismatches() const { return mismatches_; }

 private:
  /// Shapes that are remembered. The one that was used least recently makes room for another.
  static constexpr std::size_t kMaxShapes = 256;

  struct Shape {
    std::vector<Bytes> sizes{};
    std::vector<bool> recomputable{};  // by storage
    std::optional<RecordedStep> recorded{};
    bool learnt = false;      // another run's recording, and no step of this one has ended
    bool rebased = false;     // the recording is of a step that began with less live
    bool to_correct = false;  // and no step has followed a plan made of it
    std::optional<MeasuredTimes> times{};
    std::optional<StepProfile> profile{};  // of both; none where it is to be made
    std::optional<BudgetPlan>
        plan{};  // for allocated_at_begin; none where the step is to be recorded
    /// By storage: those whose way back begins when it is wanted.
    std::vector<std::vector<std::size_t>> due{};
    Bytes allocated_at_begin{};
    Bytes budget{};                    // of the profile, reserved_margin included
    Bytes holds{};                     // a step that follows the last plan, as it is thought
    std::deque<double> seconds{};      // that the last steps took that followed the plan
    std::uint64_t plans = 0;           // that have replaced another one
    std::uint64_t last_used = 0;       // counts the steps
    bool settled = false;              // recorded again already, or found as it was
    Bytes margin{};                    // what planned steps have needed beyond the budget
    ReservedMargin reserved_margin{};  // what was held beyond it
  };

  /// A step that has ended on the device, and may not have been timed yet.
  struct Followed {
    const Shape* shape;  // null for a step that followed no plan
    std::uint64_t plan;
  };

  void note_followed(const Shape* shape);
  void drop_oldest();
  void make_plan(Shape& shape, Bytes live) const;
  /// The known shape that this step is, if it ends now; null where it is none.
  [[nodiscard]] Shape* ended() const;
  [[nodiscard]] Bytes least_of(const StepCurve& curve) const;
  [[nodiscard]] static bool has_least(const Shape& shape);
  [[nodiscard]] static Bytes planned_peak(const Shape& shape);
  [[nodiscard]] std::optional<Bytes> least_planned() const;
  [[nodiscard]] bool counts_reserved(Bytes budget) const;
  /// What the step that is to end needed of the budget, with `peak` bytes allocated.
  [[nodiscard]] Bytes needed_with(Bytes peak) const;
  [[nodiscard]] Bytes smallest_for(Bytes needed, const StepCurve& curve) const;
  [[nodiscard]] std::optional<BudgetShortage> shortage(const StepCurve& curve,
                                                       const std::optional<Bytes>& least,
                                                       bool optimized) const;
  [[nodiscard]] BudgetPlan plan_for(const StepProfile& profile, Bytes allowed) const;
  void refine_last(const StepTimes& times);
  [[nodiscard]] const Shape* only_planned() const;
  void end_known(Shape& shape, const StepCurve& curve);
  bool correct(Shape& shape, const StepCurve& curve);
  void record(Shape& shape, const StepCurve& curve);

  const Bytes budget_;
  const double slowdown_;
  RecomputeTrial recompute_trial_;
  std::list<Shape> shapes_;
  Shape* recorded_last_ = nullptr;
  Shape* planned_last_ = nullptr;
  Shape* followed_last_ = nullptr;  // the same, if the step that ended last was one of it
  std::deque<Followed> followed_;   // by the device's last steps, the last one first
  std::uint64_t steps_ = 0;         // that have ended
  std::vector<Bytes> sizes_;        // of this step so far
  std::vector<bool> recomputable_;  // the same
  std::vector<Shape*> candidates_;  // shapes that begin so
  bool whole_ = true;               // everything is offloaded so far
  bool recomputed_ = false;         // something of this step is to be recomputed
  bool refused_ = false;            // host memory for something of this step
  bool known_first_ = false;
  Bytes held_{};      // at the peak of this step
  Bytes lacking_{};   // for its places
  Bytes reserved_{};  // at the peak of this step; zero where that does not count
  Bytes fewest_reserved_{};
  bool settled_ = true;  // the memory of this step
  bool settled_last_ = true;
  bool free_at_once_ = false;
  PredictedReserved foreseen_{};
  std::size_t over_in_a_row_ = 0;  // recorded steps, since a plan was followed
  std::uint64_t optimized_steps_ = 0;
  std::optional<Bytes> optimized_begin_;  // of the last step with an optimizer's
  Bytes optimized_peak_;                  // of that one's end
  std::uint64_t mismatches_ = 0;
  std::uint64_t records_ = 0;
  std::uint64_t timed_ = 0;
};

}  // namespace spillway
