// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"
#include "allocator/base/mutex.h"
#include "allocator/base/result.h"
#include "allocator/device/device_registry.h"
#include "allocator/device/step_phase.h"
#include "allocator/plan/budget.h"
#include "allocator/plan/ratio_chooser.h"
#include "allocator/step/budget_misses.h"
#include "allocator/step/budget_policy.h"
#include "allocator/step/cannot_help.h"
#include "allocator/step/step_stats.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
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
  // it stays because it was referenced elsewhere; the handle reports kUnreferenced
  bool referenced_elsewhere = false;
};

/// The session's answer for one storage that autograd saves.
struct Decision : StorageDecision {
  Site site;
  std::vector<Site> due;  // storages that have waited and must be offloaded now
};

/// The training step of a process: its phase (StepPhase), what it has saved by tag, and the policy
/// that decides for each tag. A step begins with its first saved tensor and ends for one of five
/// reasons (StepEnd).
///
/// Threads: safe. The lock is held for bookkeeping. At the end of a step with a budget it is also
/// held during calls into the heap and CUDA events. Plans are made without it.
class StepSession {
 public:
  explicit StepSession(DeviceRegistry& devices) : devices_(devices) {}

  /// Begins or ends a region. With a budget, each device on which tensors are saved is limited to
  /// it. The ratio is then ignored.
  /// Errors: kInvalidArgument if this tag has another ratio or budget in this step, or if another
  /// tag has a budget.
  Status enter_region(TagId tag, Ratio ratio, const std::optional<Budget>& budget = std::nullopt);
  void leave_region(TagId tag);
  /// Whether the tag has not completed a step with its present ratio or budget.
  [[nodiscard]] bool is_new(TagId tag) const;

  /// Decides on the next offloadable storage under `tag`.
  /// Requires: a region with that tag was entered in this step; the device exists; for a tag with a
  /// budget, the device's curve() has begun. `node`: as RatioChooser::choose.
  Decision decide(TagId tag,
                  DeviceId device,
                  Bytes size,
                  std::optional<std::uint64_t> node = std::nullopt);
  /// Likewise for a storage that can be recomputed, under a tag with a budget.
  Decision decide_recomputable(TagId tag, DeviceId device, Bytes size);
  /// Reports an event of a storage of `size` bytes; ignored for an ended step.
  void on_event(StorageEvent event, const Site& site, Bytes size = Bytes{});
  /// Reports the first use of the storage in the backward pass.
  void on_first_use(const Site& site);
  /// For a tag with a budget: the storages whose fetch begins at the first use of this one.
  [[nodiscard]] std::vector<Site> prefetch_after(const Site& site) const;

  /// Counts a saved tensor that cannot be offloaded, by reason. `size` is its storage's bytes, once
  /// per storage and step.
  void skipped(TagId tag, SkipReason reason, Bytes size);
  /// Counts a storage that could be offloaded and is kept, because its tag offloads nothing.
  void count_kept(TagId tag, Bytes size);
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

  /// Ends the step if `reason` applies now: makes statistics and ends recordings. A step without a
  /// backward pass, as after an exception, is discarded: it is not recorded and misses no budget.
  /// With kNextBegins only the optimizer phase of the previous step ends. After an optimizer step,
  /// placements are planned, and it is diagnosed whether offloading helps. Returns whether a step
  /// with saved tensors has ended.
  bool end(StepEnd reason);

  /// Reports that other hooks received a saved tensor within a region that offloads.
  void saved_elsewhere() { saved_elsewhere_.store(true, std::memory_order_relaxed); }

  /// Reports that torch.compile has created a graph.
  void graphs_are_compiled() { compiled_.store(true, std::memory_order_relaxed); }

  /// Whether a tag has a budget other than "auto".
  [[nodiscard]] bool has_budget() const;
  /// Sets the bytes of parameters, gradients and optimizer states on the device. If they exceed a
  /// budget, offloading cannot meet it.
  void model_state(DeviceId device, Bytes bytes);
  /// From now on, storages of `tag` stay on the device (Decision::waits) while offloading does not
  /// lower the peak. Regular offloading resumes when memory pressure forces one of them out, or
  /// when the peak changes.
  void offload_if_it_helps(TagId tag);

  /// Whether a step has missed its budget and the miss has not been taken.
  [[nodiscard]] bool budget_missed() const;
  /// Returns the missed budget once, for the caller to report. With `keep_first`, one of a step
  /// before the first optimizer step has ended (BudgetMiss::first) stays for a later call.
  std::optional<BudgetMiss> take_budget_miss(bool keep_first = false);

  /// The number of the running step.
  [[nodiscard]] std::uint64_t number() const;
  /// Statistics; at most `most_tags` tags, by id.
  [[nodiscard]] SessionStats stats(std::size_t most_tags) const;
  /// Number of tags that step ends have visited; only tags used in the step are visited. For tests.
  [[nodiscard]] std::uint64_t tags_visited() const;

 private:
  friend class BudgetPlans;

  struct Tag {
    Tag(Ratio ratio, const std::optional<Budget>& budget);

    Ratio ratio;
    std::optional<Budget> budget;
    std::unique_ptr<OffloadPolicy> policy;
    BudgetPolicy* budgets = nullptr;  // the policy, of a tag with a budget
    int open = 0;
    bool used = false;                // something was saved in the running step
    bool had_backward = false;        // a step of it has had a backward pass
    bool in_optimizer_phase = false;  // the last step is in its optimizer phase
    ReportedMisses reported{};
    TagStepStats step;  // of the running step
    TagStepStats last;  // of the last step with a saved tensor
  };

  Decision decide(
      TagId tag, DeviceId device, Bytes size, std::optional<std::uint64_t> node, bool recomputable);
  Decision decide_locked(TagId id, Tag& tag, OfferedStorage storage) SPILLWAY_REQUIRES(mutex_);
  /// Calls `count` with the statistics of the tag, which is then used in the running step.
  template <typename Count>
  void count(TagId tag, Count count);
  /// Likewise with the statistics of the site's tag, unless its step has ended.
  template <typename Count>
  void count(const Site& site, Count count);
  /// Marks the tag as used in the running step.
  void use_locked(TagId id, Tag& tag) SPILLWAY_REQUIRES(mutex_);
  Tag* find_tag_locked(TagId tag) SPILLWAY_REQUIRES(mutex_);
  /// Requires: a region with that tag was entered.
  Tag& tag_locked(TagId tag) SPILLWAY_REQUIRES(mutex_);
  /// The policy of a tag with a budget; null for others.
  BudgetPolicy* budgets_locked(TagId tag) SPILLWAY_REQUIRES(mutex_);
  /// The tag of a site of the running step; null for a site of an older step.
  Tag* running_tag_locked(const Site& site) SPILLWAY_REQUIRES(mutex_);
  /// Another tag with a budget in the running step; null if there is none.
  [[nodiscard]] const TagId* other_budget_locked(TagId tag) const SPILLWAY_REQUIRES(mutex_);

  void advance(StepEvent event);
  [[nodiscard]] bool applies_locked(StepEnd reason) const SPILLWAY_REQUIRES(mutex_);
  /// Returns the shape of the step; none if no step with a backward pass has ended.
  std::optional<std::uint64_t> close_locked(StepEnd reason) SPILLWAY_REQUIRES(mutex_);
  /// The part of it for one tag.
  void close_tag_locked(TagId id, Tag& tag, bool had_backward, StepEnd reason)
      SPILLWAY_REQUIRES(mutex_);
  void end_optimizer_phases_locked(bool optimized) SPILLWAY_REQUIRES(mutex_);
  void end_budgets_locked(Tag& tag, bool had_backward, bool optimized) SPILLWAY_REQUIRES(mutex_);
  void note_locked(Tag& tag, std::vector<BudgetMiss> misses) SPILLWAY_REQUIRES(mutex_);
  /// Sizes the devices' host memory after a step of that shape.
  void fit_host_memory(std::uint64_t shape);
  /// Ends the step in the devices' peaks, and diagnoses whether offloading lowers them.
  void diagnose();

  DeviceRegistry& devices_;
  mutable Mutex mutex_;
  std::map<TagId, Tag> tags_ SPILLWAY_GUARDED_BY(mutex_);
  // Subsets of `tags_`, so that a step visits only the tags that it uses.
  std::vector<TagId> used_ SPILLWAY_GUARDED_BY(mutex_);  // in the running step
  std::vector<TagId> in_optimizer_phase_ SPILLWAY_GUARDED_BY(mutex_);
  std::set<TagId> budgeted_ SPILLWAY_GUARDED_BY(mutex_);
  mutable std::uint64_t tags_visited_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  BudgetMisses misses_ SPILLWAY_GUARDED_BY(mutex_);
  int open_regions_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  std::optional<Site> last_saved_ SPILLWAY_GUARDED_BY(mutex_);  // among those decided by a ratio
  std::uint64_t shape_ SPILLWAY_GUARDED_BY(mutex_) = 0;  // hash of the running step's storages
  // Of the running step, up to the end of its optimizer step.
  Bytes offloadable_ SPILLWAY_GUARDED_BY(mutex_);
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
  std::atomic<std::int64_t> handles_{0};
  std::atomic<StepPhase> phase_{StepPhase::kOutside};
  /// Since last_saved_, no other node has saved or used a storage.
  std::atomic<bool> undisturbed_{false};
};

}  // namespace spillway
