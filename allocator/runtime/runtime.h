// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"
#include "allocator/base/mutex.h"
#include "allocator/base/result.h"
#include "allocator/plan/budget.h"
#include "allocator/plan/budget_chooser.h"
#include "allocator/plan/ratio_chooser.h"
#include "allocator/runtime/cannot_help.h"
#include "allocator/runtime/device_runtime.h"
#include "allocator/runtime/stats.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace spillway {

/// Where one storage stands in its step: what a handle must remember to report on it later.
struct Site {
  TagId tag = TagId::kUntagged;
  DeviceId device{};
  std::uint64_t step = 0;
  std::size_t index = 0;
  bool watched = false;  // it reports to the device's curve
  bool held = false;     // it stays because another owner held it: not_held() is to be told
};

/// What to do with one storage that autograd saves.
struct Decision {
  bool move = false;
  bool recompute = false;  // it is released, and recomputed
  bool waits = false;      // it may have to move later in the step
  bool known = true;       // the step is, so far, one that is planned
  bool recording = false;  // the step's times are wanted, for a plan for the next ones
  Site site;
  std::vector<Site> due;  // have waited, and are to move now
};

/// A step that needed more than its budget.
struct BudgetMiss {
  DeviceId device{};
  Bytes budget;
  BudgetShortage shortage;
  std::uint64_t step = 0;  // the first one is 1
  std::string shape;       // of the first tensor that it saved
  bool warns = false;      // it is a warning, not an error
  /// Not everything was offloaded, or only fragmentation exceeded the budget: later steps may meet
  /// it. Then shortage.least is what this one needed.
  bool adapts = false;
  /// No optimizer's step had ended before it: the states that one makes are in no step yet.
  bool first = false;
};

/// What to pause, and whether its contents are kept.
struct PauseRequest {
  std::string pattern;  // tag_matches
  Contents contents = Contents::kKept;
};

/// What a pause or a resume came to, over all devices.
struct PauseReport {
  std::uint64_t blocks = 0;
  Bytes bytes;     // as their owners asked for them
  Bytes copied;    // to or from the host
  Bytes released;  // by a pause, to the driver
};

/// The process-wide joint of all stages: one DeviceRuntime per device, one ratio per tag, and the
/// one definition of a step. Built on first use, never destroyed (CUDA may be gone when destructors
/// run). Inert in a forked child.
///
/// A step ends when no packed handle lives any more after the backward pass has begun or outside
/// all regions, at an optimizer's post-step hook, or by end_step().
///
/// Threads: safe. Its lock is never held across a call into a DeviceRuntime's stages that can
/// block, nor into PyTorch.
class Runtime {
 public:
  static Runtime& instance();

  /// For tests: a Runtime of its own with its own options.
  explicit Runtime(RuntimeOptions options);

  /// The device's stages, made on first use. Errors: kNoDriver, kDriver, kInvalidArgument
  /// (environment, or there is no such device).
  Result<DeviceRuntime*> device(DeviceId id);
  /// Caps what each device's heap may hold, those of devices that are made later too; as
  /// DeviceRuntime::set_limit. Errors: kInvalidArgument where a device that is made has less; a
  /// device that is made later cannot be made then. Nothing has changed for the others.
  Status set_memory_limit(Bytes limit);
  /// As `device`, but null where it has not been made.
  DeviceRuntime* device_if_made(DeviceId id);
  /// The device in whose heap a live block lies around `at`, null where there is none.
  DeviceRuntime* owner(driver::DevicePtr at);

  /// Takes the memory offloaded of all live blocks, on all devices, whose tag fits one of the
  /// patterns; the addresses stay. Blocks allocated under such a tag later are not paused. The
  /// caller knows that nothing works on the blocks before the resume; a touch faults. A stream that
  /// uses a block besides its own must have been recorded or be waited for by it, as for a free.
  /// Stream: the host waits for what the blocks' streams have been given, and for the copies.
  /// Errors: kInvalidArgument for the empty pattern, and where no memory is under any of them;
  /// kNotReady where all of it is paused; kOutOfHostMemory; kDriver. All or nothing: nothing is
  /// paused then.
  Result<PauseReport> pause(const std::vector<PauseRequest>& requests);

  /// Brings paused memory back, at its addresses; any stream may use it afterwards.
  /// Stream: the host waits for the copies. Errors: kInvalidArgument and kNotReady as pause();
  /// kOutOfDeviceMemory after what may be paused instead (evictable()) has been, with the report
  /// that an allocation's has; kDriver. All or
  /// nothing: everything is paused as before then.
  Result<PauseReport> resume(const std::vector<std::string>& patterns);

  /// What out of memory may pause by itself, to be resumed by resume() or enter_resident().
  Evictable& evictable() { return evictable_; }

  /// Until the matching leave_resident(), memory under `pattern` is on the device and stays there
  /// when memory runs out: what is paused is fetched now. Errors: as resume(); nothing has changed
  /// then.
  Result<PauseReport> enter_resident(const std::string& pattern);

  void leave_resident(const std::string& pattern) { evictable_.unpin(pattern); }

  /// A region begins or ends. With a budget, each device that it saves tensors on is to need no
  /// more than that, and the ratio is of no account. Errors: kInvalidArgument where this tag
  /// already has another ratio or budget in this step, or another one has a budget.
  Status enter_region(TagId tag, Ratio ratio, const std::optional<Budget>& budget = std::nullopt);
  void leave_region(TagId tag);
  /// Whether the tag has had no whole step yet since it has its ratio or budget.
  [[nodiscard]] bool is_new(TagId tag) const;

  /// The next offloadable storage under `tag`. Requires: a region with that tag was entered in this
  /// step.
  /// For a tag with a budget, the device's curve() has begun. `node`: as RatioChooser::choose.
  Decision decide(TagId tag,
                  DeviceId device,
                  Bytes size,
                  std::optional<std::uint64_t> node = std::nullopt);
  /// The same for a storage that can be recomputed, under a tag with a budget.
  Decision decide_recomputable(TagId tag, DeviceId device, Bytes size);
  /// The decision to move could not be carried out (no host memory): the storage stays.
  void not_moved(const Site& site, Bytes size);
  /// What waited was to move, and has ended or been used: it stays.
  void stays(const Site& site);
  /// The storage was alive at its unpack: aliased, and not moved again in this shape. Ignored for
  /// an ended step.
  void alive_at_unpack(const Site& site, Bytes size);
  /// A storage that stays as held elsewhere was held by nothing else at its unpack.
  void not_held(const Site& site);
  /// The storage is unpacked for the first time.
  void wanted(const Site& site);
  /// Of a tag with a budget: the storages that begin to be fetched when that one has been wanted.
  [[nodiscard]] std::vector<Site> due_with(const Site& site) const;
  /// The plan of the last step of that tag that had one with times; none without.
  [[nodiscard]] std::optional<PlannedStep> planned_step(TagId tag, DeviceId device) const;
  /// As BudgetChooser::reserved_following_plans.
  [[nodiscard]] Bytes reserved_following_plans(TagId tag, DeviceId device) const;
  /// The times of the last recorded step on the device; none where they could not be had.
  void time(DeviceId device, const std::optional<StepTimes>& times);
  /// What a step on the device took, in seconds, as BudgetChooser::took.
  void took(DeviceId device, double seconds, std::size_t steps_ago);
  /// What budgets of that tag have recorded on the device, as BudgetChooser::known; empty without.
  [[nodiscard]] std::vector<KnownStep> known_steps(TagId tag, DeviceId device) const;
  /// How often that has changed, over all devices.
  [[nodiscard]] std::uint64_t records(TagId tag) const;
  /// How many of its steps were timed, over all devices.
  [[nodiscard]] std::uint64_t timed_steps(TagId tag) const;
  /// Plans the tag's steps with them. Requires: the tag has a budget, or nothing happens. Errors:
  /// as BudgetChooser::learn; those before a wrong one are learnt.
  Status learn_steps(TagId tag, DeviceId device, std::vector<KnownStep> steps);
  /// A saved tensor that cannot be moved, by reason; `size` is its storage's bytes, once per
  /// storage and step.
  void skipped(TagId tag, SkipReason reason, Bytes size);
  /// A storage that could be moved and stays, because its tag moves nothing.
  void stays(TagId tag, Bytes size);
  /// A storage that is neither kept nor moved, because it can be recomputed; and that it was.
  void left_to_recompute(TagId tag, Bytes size);
  void recomputed(TagId tag, Bytes size);
  /// The storage has moved; `copied` of its bytes are copied to the host.
  void moved(const Site& site, Bytes size, Bytes copied);
  /// This many more of its bytes are copied to the host, or back.
  void copied(const Site& site, Bytes bytes);
  void fetched(const Site& site, Bytes bytes);

  /// A packed handle began or ended to live; `unpacked` says that the backward pass has begun.
  void handle_made();
  bool handle_gone();  // true where a step has ended with it
  void unpacked();

  /// A saved tensor went to hooks of others, although a region that moves something is open.
  void saved_elsewhere() { saved_elsewhere_.store(true, std::memory_order_relaxed); }

  /// torch.compile has made a graph.
  void graphs_are_compiled() { compiled_.store(true, std::memory_order_relaxed); }

  /// Whether a tag has a budget in bytes, or as a share of a device, that was not found too small.
  [[nodiscard]] bool has_budget() const;
  /// Parameters, gradients and optimizer states of one optimizer have this many bytes on the
  /// device. Where that exceeds a budget, offloading cannot meet it.
  void model_state(DeviceId device, Bytes bytes);
  /// From now on, while offloading does not lower the peak, storages of that tag stay on the device
  /// and wait there (Decision::waits). They move again once they are offloaded under pressure, or
  /// the peak grows.
  void offload_where_it_helps(TagId tag);

  /// The steps with a budget whose backward pass is over have no optimizer's step any more that
  /// counts: another one begins.
  void end_optimizer_phases();

  /// Ends the step now: plans are made, statistics are latched, host arenas are trimmed.
  void end_step();

  /// Whether a step has missed its budget and that was not taken.
  [[nodiscard]] bool budget_missed() const;
  /// The budget that a step has missed, once, for the caller to report.
  std::optional<BudgetMiss> take_budget_miss();

  /// Of the first `most_tags` tags by id only.
  [[nodiscard]] RuntimeStats stats(
      std::size_t most_tags = std::numeric_limits<std::size_t>::max()) const;

  /// How often a step has looked at a tag, for tests: only at those that it uses.
  [[nodiscard]] std::uint64_t tags_visited() const;

  [[nodiscard]] const RuntimeOptions& options() const { return options_; }

  /// The number of the running step.
  [[nodiscard]] std::uint64_t step() const;

 private:
  struct Tag {
    Tag(Ratio ratio, const std::optional<Budget>& of) : chooser(ratio), budget(of) {}

    RatioChooser chooser;
    const std::optional<Budget> budget;
    std::map<DeviceId, BudgetChooser> budgets{};  // of tags that have one
    int open = 0;
    bool used = false;                     // something was saved in the running step
    bool whole = false;                    // a step of it has had its backward pass
    bool tail = false;                     // the last step's budgets wait for its optimizer's step
    Bytes told{};                          // of a budget that the step has missed
    Bytes warned{};                        // the same, of all steps
    Bytes warned_that_adapts{};            // the same, of BudgetMiss::adapts
    std::map<DeviceId, Bytes> reserved{};  // up to the end of the step's backward pass
    TagStepStats step;                     // of the running step
    TagStepStats last;                     // of the last step that saved anything
  };

  static constexpr std::size_t kMaxDevices = 64;  // that are found without the lock

  Runtime(RuntimeOptions options, Status settings);

  struct Storage {
    Bytes size;
    std::optional<std::uint64_t> node{};
    bool recomputable = false;
  };

  Decision decide(TagId tag, DeviceId device, const Storage& storage);
  /// Whether the next storage of the decision's site moves; gives the site its index.
  bool choose_locked(Tag& tag, Decision& decision, const Storage& storage)
      SPILLWAY_REQUIRES(mutex_);
  /// Of the tag's budgets, over all devices.
  [[nodiscard]] std::uint64_t sum_of(TagId tag,
                                     std::uint64_t (BudgetChooser::*count)() const) const;
  [[nodiscard]] const BudgetChooser* budget_of_locked(TagId tag, DeviceId device) const
      SPILLWAY_REQUIRES(mutex_);
  /// Requires: the runtime's lock.
  static BudgetChooser& budget_on_locked(Tag& tag, DeviceRuntime& device);
  bool choose_by_budget_locked(Tag& tag, Decision& decision, const Storage& storage)
      SPILLWAY_REQUIRES(mutex_);
  /// Something is saved in the running step.
  void use_locked(TagId id, Tag& tag) SPILLWAY_REQUIRES(mutex_);
  /// A tag's part of close_step_locked().
  void close_tag_locked(TagId id, Tag& tag, bool whole, bool optimized) SPILLWAY_REQUIRES(mutex_);
  /// The step's backward pass is over.
  void begin_optimizer_phase_locked(Tag& tag) SPILLWAY_REQUIRES(mutex_);
  void close_budgets_locked(Tag& tag, bool whole, bool optimized) SPILLWAY_REQUIRES(mutex_);
  /// A step of `tag` has ended on the device, and none of the other budgets.
  void end_elsewhere_locked(DeviceId device, const Tag& tag) SPILLWAY_REQUIRES(mutex_);
  void end_optimizer_phases_locked(bool optimized) SPILLWAY_REQUIRES(mutex_);
  static BudgetMiss miss_on(const DeviceRuntime& device,
                            const BudgetChooser& budget,
                            const BudgetShortage& shortage);
  void note_budget_miss_locked(Tag& tag, BudgetMiss miss) SPILLWAY_REQUIRES(mutex_);
  /// The running step's tag with a budget, other than that one; null where there is none.
  [[nodiscard]] const TagId* other_budget_locked(TagId tag) const SPILLWAY_REQUIRES(mutex_);
  Tag* find_tag_locked(TagId tag) SPILLWAY_REQUIRES(mutex_);
  void begin_phase(StepPhase phase);
  /// Ends the step of the devices' peaks, and says whether offloading lowers them.
  void diagnose();
  /// The tag of a site of the running step, null for an older one's.
  Tag* running_tag_locked(const Site& site) SPILLWAY_REQUIRES(mutex_);
  /// The part of end_step() that needs the lock. The shape of the step, none where no whole step
  /// has ended.
  std::optional<std::uint64_t> close_step_locked(bool optimized = false) SPILLWAY_REQUIRES(mutex_);
  /// Sizes the devices' host memory after a step of that shape.
  void fit_host_memory(std::uint64_t shape);
  [[nodiscard]] Status usable() const;
  [[nodiscard]] Status nothing_under(const std::vector<std::string>& patterns,
                                     const char* otherwise) const;
  Result<PauseReport> resume_in_turn(const std::vector<std::string>& patterns);
  [[nodiscard]] std::vector<DeviceRuntime*> made_devices() const;

  const RuntimeOptions options_;
  const Status settings_;  // of the environment
  Evictable evictable_;
  Mutex making_;  // held while a device is made, so that none is made twice; before mutex_
  mutable LightMutex mutex_;
  std::map<DeviceId, std::unique_ptr<DeviceRuntime>> devices_ SPILLWAY_GUARDED_BY(mutex_);
  Bytes memory_limit_ SPILLWAY_GUARDED_BY(mutex_);
  std::map<TagId, Tag> tags_ SPILLWAY_GUARDED_BY(mutex_);
  // Parts of `tags_`, so that a step costs nothing for tags that it does not use.
  std::vector<TagId> used_ SPILLWAY_GUARDED_BY(mutex_);   // in the running step
  std::vector<TagId> tails_ SPILLWAY_GUARDED_BY(mutex_);  // whose optimizer phase is not over
  std::set<TagId> budgeted_ SPILLWAY_GUARDED_BY(mutex_);
  std::uint64_t tags_visited_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  std::optional<BudgetMiss> budget_miss_ SPILLWAY_GUARDED_BY(mutex_);
  int open_regions_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  Site last_saved_ SPILLWAY_GUARDED_BY(mutex_);          // of those that a ratio decides on
  std::uint64_t shape_ SPILLWAY_GUARDED_BY(mutex_) = 0;  // hash of the running step's storages
  // Of the running step, up to the end of its optimizer's step.
  Bytes movable_ SPILLWAY_GUARDED_BY(mutex_);
  Bytes left_to_recompute_ SPILLWAY_GUARDED_BY(mutex_);
  std::map<DeviceId, Bytes> stashed_ SPILLWAY_GUARDED_BY(mutex_);  // up to the step before
  CannotHelp cannot_help_ SPILLWAY_GUARDED_BY(mutex_);
  std::map<DeviceId, Bytes> kept_at_ SPILLWAY_GUARDED_BY(mutex_);  // peaks when keeps_ began
  std::optional<TagId> where_it_helps_ SPILLWAY_GUARDED_BY(mutex_);
  HelplessSteps helpless_ SPILLWAY_GUARDED_BY(mutex_);
  bool keeps_ SPILLWAY_GUARDED_BY(mutex_) = false;     // storages of where_it_helps_ stay
  bool offloads_ SPILLWAY_GUARDED_BY(mutex_) = false;  // something of it, in this step
  std::atomic<bool> saved_elsewhere_{false};
  std::atomic<bool> compiled_{false};
  // What every handle touches. A step is closed under the lock, when no handle lives.
  std::atomic<std::uint64_t> step_{0};
  std::atomic<std::int64_t> live_handles_{0};
  std::atomic<bool> handles_made_{false};  // in the running step
  std::atomic<bool> unpacked_{false};      // in the running step
  /// Nothing was saved or wanted since by another node than that which saved last_saved_.
  std::atomic<bool> undisturbed_{false};
  /// Those of `devices_`, by number, for who asks without the lock.
  std::array<std::atomic<DeviceRuntime*>, kMaxDevices> made_{};
};

}  // namespace spillway
