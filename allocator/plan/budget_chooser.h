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

/// The budget that a step would have needed.
struct BudgetShortage {
  Bytes least;
  Bytes begin;        // allocated when the step began
  Bytes activations;  // storages that it saved, on the device at its peak
  /// `least` is only a lower bound: no optimizer step has been measured after this step, nor after
  /// one that began with the same allocated bytes.
  bool lower_bound = false;
};

/// A plan that a step followed. Its profile begins with RecordedStep::begin allocated bytes. The
/// budget of the plan is the step's budget, minus the bytes by which the step began above that.
struct PlannedStep {
  StepProfile profile;
  BudgetPlan plan;
  Bytes budget;     // for the profile
  Bytes allocated;  // allocated when the step began
  PredictedReserved foreseen;
  /// Duration on the device of steps that followed it, from the first saved storage to the end of
  /// the backward pass. The median of the last ones; none while unknown.
  std::optional<double> seconds;
};

/// Decides which of a step's offloadable storages are offloaded, so that one device stays within a
/// budget. Pure: no clock, no CUDA.
///
/// A sequence is the sizes of a step's storages, and whether each can be recomputed. A new sequence
/// is recorded: every storage is recomputed if it can be, and offloaded otherwise. If recomputation
/// would need too much room, such steps only offload (RecomputeTrial). A known sequence follows the
/// plan made from its recording (plan_step) for the bytes allocated at its beginning.
///
/// While a step may still match several known sequences, a storage is kept only if all their plans
/// keep it. Once the step matches none, the rest of it is offloaded or recomputed. If a storage was
/// kept before, the step is incomplete as a recording. The next step of its sequence is recorded
/// then.
///
/// The first training step allocates memory that later steps already find. A sequence is therefore
/// recorded a second time if its next step begins with other allocated bytes. If that step would
/// exceed the budget, the first recording is adjusted to the new beginning instead. Other changes
/// of the allocated bytes lead to a new plan, not to a recording. Later recordings follow a step
/// that exceeded the budget, or are made while no plan fits.
///
/// The host delays the recorded step by mapping memory and loading kernels. The first planned steps
/// are therefore measured too (MeasuredTimes), and the plan is revised if necessary.
///
/// Threads: confined; the runtime holds its lock.
class BudgetChooser {
 public:
  /// `slowdown`: as in Budget.
  explicit BudgetChooser(Bytes budget, double slowdown = 0)
      : budget_(budget), slowdown_(slowdown), recompute_trial_(budget) {}

  [[nodiscard]] Bytes budget() const { return budget_; }

  /// The action for the step's next offloadable storage. `allocated`: allocated bytes when the step
  /// began. `recomputable`: it can be recomputed instead.
  Action choose(Bytes size, Bytes allocated, bool recomputable = false);

  /// The storages of this step whose fetch begins at the first use of storage `index`.
  [[nodiscard]] std::vector<std::size_t> due_with(std::size_t index) const;

  /// Whether to time the running step. The result may still change during the step.
  [[nodiscard]] bool recording() const;
  /// Sets the times of the last step, if they were needed; none if they are unknown.
  void time(const std::optional<StepTimes>& times);
  /// Duration of a step that ended `steps_ago` steps before the device's last one; hosts run ahead
  /// of their device. Ignored unless that step followed, to its end, a plan that is still current.
  void took(double seconds, std::size_t steps_ago = 0);

  /// Records that another BudgetChooser chose the last step on the device.
  void ended_elsewhere() {
    followed_last_ = nullptr;
    note_followed(nullptr);
  }

  /// The recorded steps that can be planned.
  [[nodiscard]] std::vector<KnownStep> known() const;

  /// Number of changes to the recorded steps so far.
  [[nodiscard]] std::uint64_t records() const { return records_; }

  /// Number of timed steps. After each of them the host waited for the device.
  [[nodiscard]] std::uint64_t timed() const { return timed_; }

  /// Adds a step recorded elsewhere; known steps are unchanged.
  /// Errors: kInvalidArgument for a recording that no step can have produced.
  Status learn(KnownStep step);

  /// The storage with that index could not be offloaded: this step is not recorded.
  void not_offloaded() {
    whole_ = false;
    refused_ = true;
  }

  /// Records that mapping memory stalled the host in the running step; its timings are not used.
  /// To be called before end_step(), as are the setters below.
  void unsettled() { settled_ = false; }

  /// The device's memory can be reused as soon as its copy out is queued
  /// (StepProfile::free_at_once).
  void frees_at_once();

  /// Sets the prediction of reserved bytes at the beginning of the step.
  void foresee(const PredictedReserved& predicted) { foreseen_ = predicted; }

  /// Sets the peak of the reserved bytes of the step that is to end, which similar steps will reach
  /// again. If a planned step exceeded the budget, later plans leave at least the excess free.
  void reserved_following_plan(Bytes most) { reserved_following_plan_ = most; }

  /// `most`: peak of the reserved bytes in the step that is to end. `fewest`: the smallest budget
  /// that limits reserved bytes; smaller budgets limit allocated bytes.
  void reserved(Bytes most, Bytes fewest) {
    reserved_ = most;
    fewest_reserved_ = fewest;
  }

  /// Records that the heap could not place a plan for the running step within the budget. Later
  /// plans use `bytes` less.
  void shortfall(Bytes bytes) { shortfall_ = bytes; }

  /// Whether the step that is to end has exceeded the budget, with `peak` allocated bytes or by
  /// reserved bytes.
  [[nodiscard]] bool exceeds(Bytes peak) const;

  /// The bytes that the step needed and began with, if it has exceeded the budget.
  [[nodiscard]] std::optional<BudgetShortage> excess(const StepCurve& curve) const;

  /// The shortage if the step has exceeded the budget although no plan would need less. Either
  /// everything was offloaded or recomputed, or the step followed a minimal plan, or host memory
  /// was refused. There is no shortage if only predicted reserved bytes exceed the budget. Nor is
  /// there one if the allocated bytes fit and the reserved bytes exceed it by at most a sixteenth.
  [[nodiscard]] std::optional<BudgetShortage> shortage(const StepCurve& curve) const;
  /// Closes the step; `optimized`: an optimizer step is included. Returns the shortage as
  /// shortage() does.
  std::optional<BudgetShortage> end_step(const StepCurve& curve, bool optimized = false);

  /// Number of steps that ended with an optimizer step.
  [[nodiscard]] std::uint64_t optimized_steps() const { return optimized_steps_; }

  /// Closes a step that had no backward pass.
  void abandon_step();

  [[nodiscard]] std::size_t seen() const { return sizes_.size(); }

  /// Predicted peak of the reserved bytes of steps that follow the latest plans; zero without a
  /// plan.
  [[nodiscard]] Bytes reserved_following_plans() const;

  /// Whether this step matches a known one so far.
  [[nodiscard]] bool planned() const { return !candidates_.empty(); }

  /// The plan of the last step that had a plan with times.
  [[nodiscard]] std::optional<PlannedStep> planned_last() const;

  /// Steps that began like a known one and diverged.
  [[nodiscard]] std::uint64_t mismatches() const { return mismatches_; }

 private:
  /// Maximum number of shapes; the least recently used one is replaced.
  static constexpr std::size_t kMaxShapes = 256;

  struct Shape {
    std::vector<Bytes> sizes{};
    std::vector<bool> recomputable{};  // by storage
    std::optional<RecordedStep> recorded{};
    // another run's recording, before the first step of this run has ended
    bool learnt = false;
    bool rebased = false;     // the recording is of a step that began with fewer allocated bytes
    bool to_correct = false;  // and no step has followed a plan made from it
    std::optional<MeasuredTimes> times{};
    std::optional<StepProfile> profile{};  // of both; none until it is computed
    std::optional<BudgetPlan> plan{};  // for allocated_at_begin; none if the step must be recorded
    /// By storage: the storages whose fetch begins at its first use.
    std::vector<std::vector<std::size_t>> due{};
    Bytes allocated_at_begin{};
    Bytes budget{};  // of the profile, including reserved_margin
    // predicted reserved bytes of a step that follows the latest plan
    Bytes holds{};
    std::deque<double> seconds{};  // durations of the last steps that followed the plan
    std::uint64_t plans = 0;       // number of plans so far
    std::uint64_t last_used = 0;   // step counter at the last use
    // recorded a second time, or confirmed by a step that began alike
    bool settled = false;
    Bytes margin{};                    // bytes that planned steps have needed beyond the budget
    ReservedMargin reserved_margin{};  // reserved bytes beyond the budget
  };

  /// A step that has ended on the device and may not have been timed yet.
  struct Followed {
    const Shape* shape;  // null for a step without a plan
    std::uint64_t plan;
  };

  void note_followed(const Shape* shape);
  void drop_oldest();
  void make_plan(Shape& shape, Bytes allocated) const;
  /// The known shape that this step matches if it ends now; null if none.
  [[nodiscard]] Shape* ended() const;
  [[nodiscard]] Bytes least_of(const StepCurve& curve) const;
  [[nodiscard]] static bool has_least(const Shape& shape);
  [[nodiscard]] static Bytes planned_peak(const Shape& shape);
  [[nodiscard]] std::optional<Bytes> least_planned() const;
  [[nodiscard]] bool counts_reserved(Bytes budget) const;
  /// Bytes that the step needed of the budget, with `peak` allocated bytes.
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
  Shape* followed_last_ = nullptr;  // likewise, if the last step followed its plan
  std::deque<Followed> followed_;   // of the device's last steps, the latest first
  std::uint64_t steps_ = 0;         // ended steps
  std::vector<Bytes> sizes_;        // of this step so far
  std::vector<bool> recomputable_;  // likewise
  std::vector<Shape*> candidates_;  // shapes that match so far
  bool whole_ = true;               // every storage is offloaded or recomputed so far
  bool recomputed_ = false;         // a storage of this step is left to recompute
  bool refused_ = false;            // host memory was refused to a storage of this step
  bool known_first_ = false;
  Bytes reserved_following_plan_{};  // at the peak of this step
  Bytes shortfall_{};                // for a placement within the budget
  Bytes reserved_{};  // at the peak of this step; zero if the budget does not limit it
  Bytes fewest_reserved_{};
  bool settled_ = true;  // no mapping of memory stalled this step
  bool settled_last_ = true;
  bool free_at_once_ = false;
  PredictedReserved foreseen_{};
  std::size_t over_in_a_row_ = 0;  // recorded steps since a plan was followed
  std::uint64_t optimized_steps_ = 0;
  std::optional<Bytes> optimized_begin_;  // of the last step with an optimizer step
  Bytes optimized_peak_;                  // at the end of that step
  std::uint64_t mismatches_ = 0;
  std::uint64_t records_ = 0;
  std::uint64_t timed_ = 0;
};

}  // namespace spillway
