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

/// Identifies one storage within its step. A saved-tensor handle stores it to report on the storage
/// later.
struct Site {
  TagId tag = TagId::kUntagged;
  DeviceId device{};
  std::uint64_t step = 0;
  std::size_t index = 0;
  bool watched = false;  // it reports to the device's curve
  // it stays because it was referenced elsewhere; the handle calls unreferenced()
  bool referenced_elsewhere = false;
};

/// The action for one storage that autograd saves.
struct Decision {
  bool offload = false;
  bool recompute = false;  // it is released and recomputed later
  bool waits = false;      // it may have to be offloaded later in the step
  bool known = true;       // the step matches a planned one so far
  bool recording = false;  // the step's times are needed for a plan
  Site site;
  std::vector<Site> due;  // storages that have waited and must be offloaded now
};

/// A step that exceeded its budget.
struct BudgetMiss {
  DeviceId device{};
  Bytes budget;
  BudgetShortage shortage;
  std::uint64_t step = 0;  // the first step is 1
  std::string shape;       // shape of the first saved tensor
  bool warns = false;      // it is a warning, not an error
  /// Not everything was offloaded, or only fragmentation exceeded the budget: later steps may meet
  /// it. shortage.least is then the bytes that this step needed.
  bool adapts = false;
  /// No optimizer step had ended before it. No step has shown the optimizer states yet.
  bool first = false;
};

/// Tags to pause, and whether their contents are kept.
struct PauseRequest {
  std::string pattern;  // as in tag_matches
  Contents contents = Contents::kKept;
};

/// Result of a pause or a resume, over all devices.
struct PauseReport {
  std::uint64_t blocks = 0;
  Bytes bytes;     // as requested by their owners
  Bytes copied;    // to or from the host
  Bytes released;  // released to the driver by a pause
};

/// Joins the stages of a process: one DeviceRuntime per device, one ratio per tag, and the
/// definition of a step. Created on first use and never destroyed, because CUDA may be shut down
/// when destructors run. Inert in a forked child.
///
/// A step ends when the last saved-tensor handle is released, after the backward pass has begun or
/// outside all regions. It also ends at an optimizer's post-step hook, or by end_step().
///
/// Threads: safe. Its lock is not held across blocking calls into a DeviceRuntime's stages, nor
/// calls into PyTorch.
class Runtime {
 public:
  static Runtime& instance();

  /// For tests: a separate Runtime with separate options.
  explicit Runtime(RuntimeOptions options);

  /// The device's stages, created on first use.
  /// Errors: kNoDriver, kDriver, kInvalidArgument (environment, or there is no such device).
  Result<DeviceRuntime*> device(DeviceId id);
  /// Caps the reserved bytes of each device's heap, also of devices created later; as
  /// DeviceRuntime::set_limit.
  /// Errors: kInvalidArgument if an existing device has less memory; the other devices are
  /// unchanged. A later device with less memory cannot be created.
  Status set_memory_limit(Bytes limit);
  /// As `device`, but null if the device has not been created.
  DeviceRuntime* device_if_made(DeviceId id);
  /// The device whose heap has an allocated block that contains `at`; null if there is none.
  DeviceRuntime* owner(driver::DevicePtr at);

  /// Releases the memory of all allocated blocks whose tag matches a pattern, on all devices; the
  /// addresses stay. Blocks allocated later under such a tag are not paused.
  /// Requires: no work uses the blocks before the resume; an access faults. Streams that use a
  /// block besides its own are recorded, or its stream waits for them, as for a free.
  /// Stream: the host waits for submitted work of the blocks' streams, and for the copies.
  /// Errors: kInvalidArgument for the empty pattern, and if no memory matches; kNotReady if all of
  /// it is paused; kOutOfHostMemory; kDriver. All or nothing: nothing is paused then.
  Result<PauseReport> pause(const std::vector<PauseRequest>& requests);

  /// Restores paused memory at its addresses; any stream may use it afterwards.
  /// Stream: the host waits for the copies.
  /// Errors: kInvalidArgument and kNotReady as pause(). kOutOfDeviceMemory after all evictable()
  /// tags were paused, with the report of a failed allocation. kDriver. All or nothing: everything
  /// is paused as before then.
  Result<PauseReport> resume(const std::vector<std::string>& patterns);

  /// Tags that the out-of-memory handling may pause. resume() or enter_resident() resumes them.
  Evictable& evictable() { return evictable_; }

  /// Keeps memory under `pattern` resident until the matching leave_resident(), even if memory runs
  /// out. Resumes paused memory now.
  /// Errors: as resume(); nothing has changed then.
  Result<PauseReport> enter_resident(const std::string& pattern);

  void leave_resident(const std::string& pattern) { evictable_.unpin(pattern); }

  /// Begins or ends a region. With a budget, each device that saves tensors in it may need at most
  /// the budget, and the ratio is ignored.
  /// Errors: kInvalidArgument if this tag has another ratio or budget in this step, or if another
  /// tag has a budget.
  Status enter_region(TagId tag, Ratio ratio, const std::optional<Budget>& budget = std::nullopt);
  void leave_region(TagId tag);
  /// Whether the tag has not completed a step with its present ratio or budget.
  [[nodiscard]] bool is_new(TagId tag) const;

  /// Decides on the next offloadable storage under `tag`.
  /// Requires: a region with that tag was entered in this step; for a tag with a budget, the
  /// device's curve() has begun. `node`: as RatioChooser::choose.
  Decision decide(TagId tag,
                  DeviceId device,
                  Bytes size,
                  std::optional<std::uint64_t> node = std::nullopt);
  /// Likewise for a storage that can be recomputed, under a tag with a budget.
  Decision decide_recomputable(TagId tag, DeviceId device, Bytes size);
  /// Reports that the storage could not be offloaded, for lack of host memory: it stays.
  void not_offloaded(const Site& site, Bytes size);
  /// Reports that a waiting storage has ended or been used before its offload: it stays.
  void stays(const Site& site);
  /// Reports that the storage was still allocated at its unpack: it is aliased, and not offloaded
  /// again in this shape. Ignored for an ended step.
  void alive_at_unpack(const Site& site, Bytes size);
  /// Reports that a storage that was kept as referenced elsewhere had no other reference at its
  /// unpack.
  void unreferenced(const Site& site);
  /// Reports the first unpack of the storage.
  void used(const Site& site);
  /// For a tag with a budget: the storages whose fetch begins at the first use of this one.
  [[nodiscard]] std::vector<Site> due_with(const Site& site) const;
  /// The plan of the tag's last step that had a plan with times; none if there is none.
  [[nodiscard]] std::optional<PlannedStep> planned_step(TagId tag, DeviceId device) const;
  /// As BudgetChooser::reserved_following_plans.
  [[nodiscard]] Bytes reserved_following_plans(TagId tag, DeviceId device) const;
  /// Sets the times of the last recorded step on the device; none if they are unknown.
  void time(DeviceId device, const std::optional<StepTimes>& times);
  /// Sets the duration of a step on the device, in seconds; as BudgetChooser::took.
  void took(DeviceId device, double seconds, std::size_t steps_ago);
  /// The steps that the tag's budget has recorded on the device, as BudgetChooser::known; empty
  /// without a budget.
  [[nodiscard]] std::vector<KnownStep> known_steps(TagId tag, DeviceId device) const;
  /// Number of changes to them, over all devices.
  [[nodiscard]] std::uint64_t records(TagId tag) const;
  /// Number of timed steps, over all devices.
  [[nodiscard]] std::uint64_t timed_steps(TagId tag) const;
  /// Plans the tag's steps with recorded ones. Does nothing if the tag has no budget.
  /// Errors: as BudgetChooser::learn; the steps before an invalid one are learned.
  Status learn_steps(TagId tag, DeviceId device, std::vector<KnownStep> steps);
  /// Counts a saved tensor that cannot be offloaded, by reason. `size` is its storage's bytes, once
  /// per storage and step.
  void skipped(TagId tag, SkipReason reason, Bytes size);
  /// Counts a storage that could be offloaded and stays, because its tag offloads nothing.
  void stays(TagId tag, Bytes size);
  /// Counts a storage that is left to recompute; recomputed() counts its recomputation.
  void left_to_recompute(TagId tag, Bytes size);
  void recomputed(TagId tag, Bytes size);
  /// Counts an offloaded storage; `copied` of its bytes are copied to the host.
  void offloaded(const Site& site, Bytes size, Bytes copied);
  /// Counts further bytes copied to the host, or fetched.
  void copied(const Site& site, Bytes bytes);
  void fetched(const Site& site, Bytes bytes);

  /// Counts saved-tensor handles as they are created and released. `unpacked` reports that the
  /// backward pass has begun.
  void handle_made();
  bool handle_gone();  // true if it has ended a step
  void unpacked();

  /// Reports that other hooks received a saved tensor within a region that offloads.
  void saved_elsewhere() { saved_elsewhere_.store(true, std::memory_order_relaxed); }

  /// Reports that torch.compile has created a graph.
  void graphs_are_compiled() { compiled_.store(true, std::memory_order_relaxed); }

  /// Whether a tag has a budget in bytes, or a share of a device that was not found too small.
  [[nodiscard]] bool has_budget() const;
  /// Sets the bytes of parameters, gradients and optimizer states on the device. If they exceed a
  /// budget, offloading cannot meet it.
  void model_state(DeviceId device, Bytes bytes);
  /// Enables keeping storages of that tag resident while offloading does not lower the peak. They
  /// wait on the device (Decision::waits). Offload resumes once they are offloaded under memory
  /// pressure, or the peak grows.
  void offload_where_it_helps(TagId tag);

  /// Ends the optimizer phases of steps with a budget whose backward pass is over, because another
  /// step begins.
  void end_optimizer_phases();

  /// Ends the step now: makes plans, latches statistics, trims host arenas.
  void end_step();

  /// Whether a step has missed its budget and the miss has not been taken.
  [[nodiscard]] bool budget_missed() const;
  /// Returns the missed budget once, for the caller to report.
  std::optional<BudgetMiss> take_budget_miss();

  /// Statistics; tags are limited to the first `most_tags` by id.
  [[nodiscard]] RuntimeStats stats(
      std::size_t most_tags = std::numeric_limits<std::size_t>::max()) const;

  /// Number of tags that step ends have visited; only tags used in the step are visited. For tests.
  [[nodiscard]] std::uint64_t tags_visited() const;

  [[nodiscard]] const RuntimeOptions& options() const { return options_; }

  /// The number of the running step.
  [[nodiscard]] std::uint64_t step() const;

 private:
  struct Tag {
    Tag(Ratio ratio, const std::optional<Budget>& of) : chooser(ratio), budget(of) {}

    RatioChooser chooser;
    const std::optional<Budget> budget;
    std::map<DeviceId, BudgetChooser> budgets{};  // of tags with a budget
    int open = 0;
    bool used = false;                // something was saved in the running step
    bool whole = false;               // a step of it has had a backward pass
    bool in_optimizer_phase = false;  // the last step's budgets are in the optimizer phase
    // needed bytes of the budget miss already reported for the step
    Bytes reported{};
    Bytes warned{};                        // likewise for warnings, of all steps
    Bytes warned_that_adapts{};            // likewise for warnings with BudgetMiss::adapts
    std::map<DeviceId, Bytes> reserved{};  // peak until the end of the step's backward pass
    TagStepStats step;                     // of the running step
    TagStepStats last;                     // of the last step with a saved tensor
  };

  static constexpr std::size_t kMaxDevices = 64;  // devices that are found without the lock

  Runtime(RuntimeOptions options, Status settings);

  struct Storage {
    Bytes size;
    std::optional<std::uint64_t> node{};
    bool recomputable = false;
  };

  Decision decide(TagId tag, DeviceId device, const Storage& storage);
  /// Whether the next storage is offloaded; sets the index of the decision's site.
  bool choose_locked(Tag& tag, Decision& decision, const Storage& storage)
      SPILLWAY_REQUIRES(mutex_);
  /// Sums a counter of the tag's budgets over all devices.
  [[nodiscard]] std::uint64_t sum_of(TagId tag,
                                     std::uint64_t (BudgetChooser::*count)() const) const;
  [[nodiscard]] const BudgetChooser* budget_of_locked(TagId tag, DeviceId device) const
      SPILLWAY_REQUIRES(mutex_);
  /// Requires: the runtime's lock is held.
  static BudgetChooser& budget_on_locked(Tag& tag, DeviceRuntime& device);
  bool choose_by_budget_locked(Tag& tag, Decision& decision, const Storage& storage)
      SPILLWAY_REQUIRES(mutex_);
  /// Marks the tag as used in the running step.
  void use_locked(TagId id, Tag& tag) SPILLWAY_REQUIRES(mutex_);
  /// The part of close_step_locked() for one tag.
  void close_tag_locked(TagId id, Tag& tag, bool whole, bool optimized) SPILLWAY_REQUIRES(mutex_);
  /// Ends the step's backward pass.
  void begin_optimizer_phase_locked(Tag& tag) SPILLWAY_REQUIRES(mutex_);
  void close_budgets_locked(Tag& tag, bool whole, bool optimized) SPILLWAY_REQUIRES(mutex_);
  /// A step of `tag` has ended on the device, and none of the other budgets' steps.
  void end_elsewhere_locked(DeviceId device, const Tag& tag) SPILLWAY_REQUIRES(mutex_);
  void end_optimizer_phases_locked(bool optimized) SPILLWAY_REQUIRES(mutex_);
  static BudgetMiss miss_on(const DeviceRuntime& device,
                            const BudgetChooser& budget,
                            const BudgetShortage& shortage);
  void note_budget_miss_locked(Tag& tag, BudgetMiss miss) SPILLWAY_REQUIRES(mutex_);
  /// Another tag with a budget in the running step; null if there is none.
  [[nodiscard]] const TagId* other_budget_locked(TagId tag) const SPILLWAY_REQUIRES(mutex_);
  Tag* find_tag_locked(TagId tag) SPILLWAY_REQUIRES(mutex_);
  void begin_phase(StepPhase phase);
  /// Ends the step in the devices' peaks, and diagnoses whether offloading lowers them.
  void diagnose();
  /// The tag of a site of the running step; null for a site of an older step.
  Tag* running_tag_locked(const Site& site) SPILLWAY_REQUIRES(mutex_);
  /// The part of end_step() under the lock. Returns the shape of the step; none if no whole step
  /// has ended.
  std::optional<std::uint64_t> close_step_locked(bool optimized = false) SPILLWAY_REQUIRES(mutex_);
  /// Sizes the devices' host memory after a step of that shape.
  void fit_host_memory(std::uint64_t shape);
  [[nodiscard]] Status usable() const;
  [[nodiscard]] Status nothing_under(const std::vector<std::string>& patterns,
                                     const char* otherwise) const;
  Result<PauseReport> resume_locked(const std::vector<std::string>& patterns);
  [[nodiscard]] std::vector<DeviceRuntime*> made_devices() const;

  const RuntimeOptions options_;
  const Status settings_;  // error of the environment's settings, if any
  Evictable evictable_;
  // held while a device is created, so that it is created once; locked before mutex_
  Mutex making_;
  mutable LightMutex mutex_;
  std::map<DeviceId, std::unique_ptr<DeviceRuntime>> devices_ SPILLWAY_GUARDED_BY(mutex_);
  Bytes memory_limit_ SPILLWAY_GUARDED_BY(mutex_);
  std::map<TagId, Tag> tags_ SPILLWAY_GUARDED_BY(mutex_);
  // Subsets of `tags_`, so that a step visits only the tags that it uses.
  std::vector<TagId> used_ SPILLWAY_GUARDED_BY(mutex_);  // in the running step
  std::vector<TagId> in_optimizer_phase_
      SPILLWAY_GUARDED_BY(mutex_);  // whose optimizer phase is not over
  std::set<TagId> budgeted_ SPILLWAY_GUARDED_BY(mutex_);
  std::uint64_t tags_visited_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  std::optional<BudgetMiss> budget_miss_ SPILLWAY_GUARDED_BY(mutex_);
  int open_regions_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  Site last_saved_ SPILLWAY_GUARDED_BY(mutex_);          // among storages decided by a ratio
  std::uint64_t shape_ SPILLWAY_GUARDED_BY(mutex_) = 0;  // hash of the running step's storages
  // Of the running step, up to the end of its optimizer step.
  Bytes movable_ SPILLWAY_GUARDED_BY(mutex_);
  Bytes left_to_recompute_ SPILLWAY_GUARDED_BY(mutex_);
  std::map<DeviceId, Bytes> stashed_ SPILLWAY_GUARDED_BY(mutex_);  // up to the previous step
  CannotHelp cannot_help_ SPILLWAY_GUARDED_BY(mutex_);
  // peaks at the time when keeps_ was set
  std::map<DeviceId, Bytes> kept_at_ SPILLWAY_GUARDED_BY(mutex_);
  std::optional<TagId> where_it_helps_ SPILLWAY_GUARDED_BY(mutex_);
  HelplessSteps helpless_ SPILLWAY_GUARDED_BY(mutex_);
  bool keeps_ SPILLWAY_GUARDED_BY(mutex_) = false;     // storages of where_it_helps_ stay resident
  bool offloads_ SPILLWAY_GUARDED_BY(mutex_) = false;  // something of it was offloaded in this step
  std::atomic<bool> saved_elsewhere_{false};
  std::atomic<bool> compiled_{false};
  // Touched by every handle. A step is closed under the lock, when no handle exists.
  std::atomic<std::uint64_t> step_{0};
  std::atomic<std::int64_t> live_handles_{0};
  std::atomic<bool> handles_made_{false};  // in the running step
  std::atomic<bool> unpacked_{false};      // in the running step
  /// Since last_saved_, no other node has saved or used a storage.
  std::atomic<bool> undisturbed_{false};
  /// Those of `devices_` by number, for readers without the lock.
  std::array<std::atomic<DeviceRuntime*>, kMaxDevices> made_{};
};

}  // namespace spillway
