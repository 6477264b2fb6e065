// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"
#include "allocator/plan/budget_shortage.h"
#include "allocator/plan/known_step.h"
#include "allocator/plan/plan_request.h"
#include "allocator/plan/recompute_trial.h"
#include "allocator/plan/reserved_margin.h"
#include "allocator/plan/shapes.h"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace spillway {

/// A device's memory in one step, beside what its curve has.
struct StepMemory {
  Bytes reserved;  // peak of the reserved bytes; zero if the budget does not limit them
  /// The smallest budget that limits reserved bytes; smaller budgets limit allocated bytes.
  Bytes fewest_reserved;
  /// Peak of the reserved bytes that similar steps will reach again; zero if unknown. If a planned
  /// step exceeded the budget, later plans leave at least the excess free.
  Bytes reserved_following_plan{};
  bool host_stalled = false;  // by mapping memory; its times count only if they are faster
  bool pressed = false;       // storages were offloaded because the device had no room
  Bytes missing{};            // of the budget, for the addresses of similar steps
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
/// Planning takes milliseconds, so the owner may do it without its lock: take requests(), run them,
/// adopt() the results, then choose(). At most kMaxPlanned storages are planned per step, the most
/// recently used sequences first. Other sequences follow an earlier plan if that is safe. Otherwise
/// their storages are offloaded. The last remaining sequence is always planned.
///
/// Threads: confined; the runtime holds its lock.
class BudgetChooser {
 public:
  /// The storages that one step plans ahead, over all sequences.
  static constexpr std::size_t kMaxPlanned = 4096;

  /// `slowdown`: as in Budget.
  explicit BudgetChooser(Bytes budget, double slowdown = 0)
      : terms_{budget, slowdown, {}, false}, recompute_trial_(budget) {}

  [[nodiscard]] Bytes budget() const { return terms_.budget; }

  /// What has to be planned before choose() with the same arguments; usually nothing.
  [[nodiscard]] std::vector<PlanRequest> requests(Bytes size,
                                                  Bytes allocated,
                                                  bool recomputable = false);
  /// Takes the results of requests that have run. Those of sequences that have changed are ignored.
  void adopt(std::vector<PlanRequest>&& done);

  /// The action for the step's next offloadable storage. `allocated`: allocated bytes when the step
  /// began. `recomputable`: it can be recomputed instead. Makes the plans that requests() would
  /// return and that were not adopted. If no plan fits, the storage is recomputed or offloaded.
  Action choose(Bytes size, Bytes allocated, bool recomputable = false);

  /// The storages of this step whose fetch begins at the first use of storage `index`.
  [[nodiscard]] std::vector<std::size_t> due_with(std::size_t index) const;

  /// Whether to time the running step. The result may still change during the step.
  [[nodiscard]] bool needs_times() const;

  /// Whether the last step was recorded, so that the next one's plan needs its times.
  [[nodiscard]] bool awaits_times() const { return recorded_last_ != nullptr; }

  /// Sets the times of the step that ended `steps_ago` steps before the device's last one, if they
  /// were needed. A recorded step has none once another one has ended.
  void time(const StepTimes& times, std::size_t steps_ago = 0);
  /// Duration of a step that ended `steps_ago` steps before the device's last one; hosts run ahead
  /// of their device. Ignored unless that step followed, to its end, a plan that is still current.
  void add_step_duration(double seconds, std::size_t steps_ago = 0);

  /// Records that another BudgetChooser chose the last step on the device.
  void ended_elsewhere() {
    recorded_last_ = nullptr;
    note_followed(nullptr);
  }

  /// The known sequences.
  [[nodiscard]] const Shapes& shapes() const { return shapes_; }

  /// Counters since the beginning.
  struct Counts {
    std::uint64_t records = 0;          // changes to the recorded steps
    std::uint64_t mismatches = 0;       // steps that began like a known one and diverged
    std::uint64_t optimized_steps = 0;  // steps that ended with an optimizer step
  };

  [[nodiscard]] Counts counts() const;

  /// Adds a step recorded elsewhere; known steps are unchanged.
  /// Errors: kInvalidArgument for a recording that no step can have produced.
  Status learn(KnownStep step);

  /// Call if a storage of the running step could not be offloaded for lack of host memory. The step
  /// is then not recorded.
  void not_offloaded() {
    fully_offloaded_ = false;
    refused_ = true;
  }

  /// Where storages that are kept can still be offloaded when the device has no room, a new
  /// sequence is not recorded: its first step keeps everything, and so do later ones as long as
  /// they have room. The sequence is recorded after a step that had none.
  void keep_unplanned() { keeps_unplanned_ = true; }

  /// A storage's device memory can be reused as soon as its copy out is queued
  /// (StepProfile::free_at_once).
  void set_free_at_once();

  /// Sets the prediction of reserved bytes at the beginning of the step.
  void set_prediction(const PredictedReserved& predicted) { terms_.foreseen = predicted; }

  /// Sets the model state that shares the budget with the step that begins (PlanTerms).
  void set_model_state(const ModelStateTerms& model_state) { terms_.model_state = model_state; }

  [[nodiscard]] const ModelStateTerms& model_state() const { return terms_.model_state; }

  /// Bytes of the budget that the running step's plan leaves to model state, once it follows one.
  [[nodiscard]] std::optional<Bytes> beside() const;

  /// What leaves of the model state by the running step's plan; null before it follows one.
  [[nodiscard]] const std::vector<ModelStateLeave>* model_state_leaves() const;

  /// Sets the device's memory in the step that is to end.
  void set_memory(const StepMemory& memory) { memory_ = memory; }

  /// Whether the step that is to end has exceeded the budget, with `peak` allocated bytes or by
  /// reserved bytes.
  [[nodiscard]] bool exceeds(Bytes peak) const;

  /// The bytes that the step needed and began with, if it has exceeded the budget.
  [[nodiscard]] std::optional<BudgetShortage> excess(const StepCurve& curve) const;

  /// The shortage if the step has exceeded the budget although no plan would need less. Either
  /// everything was offloaded or recomputed, or the step followed a minimal plan, or host memory
  /// was refused. There is no shortage if only predicted reserved bytes exceed the budget. Nor is
  /// there one if the allocated bytes fit and the reserved bytes exceed the budget by at most 1/16.
  [[nodiscard]] std::optional<BudgetShortage> shortage(const StepCurve& curve) const;
  /// Closes the step; `optimized`: an optimizer step is included. Returns the shortage as
  /// shortage() does.
  std::optional<BudgetShortage> end_step(const StepCurve& curve, bool optimized = false);

  /// Closes a step that had no backward pass.
  void abandon_step();

  [[nodiscard]] std::size_t storages_seen() const { return sizes_.size(); }

  /// Whether this step matches a known one so far.
  [[nodiscard]] bool matches_known() const { return !candidates_.empty(); }

  /// The plan of the last step that had a plan with times.
  [[nodiscard]] std::optional<PlannedStep> planned_last() const;

 private:
  /// A step that has ended on the device and may not have been timed yet.
  struct Followed {
    Shape* shape;  // null for a step without a plan
    std::uint64_t plan;
    bool host_stalled;
  };

  /// Narrows the candidates to those that the next storage matches. Idempotent.
  void narrow(Bytes size, Bytes allocated, bool recomputable);
  void note_followed(Shape* shape);
  void drop_oldest_shape();
  /// The shape of a step that had none of the known ones.
  Shape& add_shape(const StepCurve& curve);
  /// The known shape that this step matches if it ends now; null if none.
  [[nodiscard]] Shape* ended() const;
  [[nodiscard]] Bytes least_of(const StepCurve& curve) const;
  [[nodiscard]] std::optional<Bytes> least_planned() const;
  [[nodiscard]] bool counts_reserved(Bytes budget) const;
  /// Bytes that the step needed of the budget, with `peak` allocated bytes.
  [[nodiscard]] Bytes needed_with(Bytes peak) const;
  [[nodiscard]] Bytes smallest_for(Bytes needed, const StepCurve& curve) const;
  [[nodiscard]] std::optional<BudgetShortage> shortage(const StepCurve& curve,
                                                       const std::optional<Bytes>& least,
                                                       bool optimized) const;
  [[nodiscard]] const Shape* only_planned() const;
  /// How the running step ends, for its shape.
  [[nodiscard]] EndedStep ending(const StepCurve& curve) const;

  PlanTerms terms_;
  RecomputeTrial recompute_trial_;
  Shapes shapes_;
  Shape* recorded_last_ = nullptr;
  Shape* planned_last_ = nullptr;
  std::deque<Followed> followed_;   // of the device's last steps, the latest first
  std::uint64_t steps_ = 0;         // ended steps
  std::vector<Bytes> sizes_;        // of this step so far
  std::vector<bool> recomputable_;  // likewise
  std::vector<Shape*> candidates_;  // shapes that match so far
  bool fully_offloaded_ = true;     // every storage is offloaded or recomputed so far
  bool fully_kept_ = true;          // every storage is kept so far
  bool keeps_unplanned_ = false;    // keep_unplanned()
  bool recomputed_ = false;         // a storage of this step is left to recompute
  bool refused_ = false;            // host memory was refused to a storage of this step
  bool begun_ = false;              // the candidates of this step are known
  bool recompute_ = false;          // the next storage is recomputable, in a step that recomputes
  bool known_first_ = false;
  StepMemory memory_{};                   // of this step
  std::size_t over_in_a_row_ = 0;         // recorded steps since a plan was followed
  std::optional<Bytes> optimized_begin_;  // of the last step with an optimizer step
  Bytes optimized_peak_;                  // at the end of that step
  Counts counts_{};                       // without records, which shapes_ has
};

}  // namespace spillway
