// SPDX-License-Identifier: Apache-2.0
#include "allocator/lifetime/recorder.h"
#include "allocator/runtime/fork.h"
#include "allocator/runtime/run_log.h"
#include "allocator/runtime/runtime.h"

#include <algorithm>
#include <utility>
#include <vector>

// Reports of storages and handles within a step, and the step's end.
namespace spillway {
namespace {

Bytes fewest_reserved(DeviceRuntime& device) {
  return Bytes{device.heap().granularity().count() * Heap::kFewestPages};
}

/// Passes the memory statistics of the ending step to the budget.
void read_memory(DeviceRuntime& device, BudgetChooser& budget) {
  Heap& heap = device.heap();
  if (const auto peak = heap.peak_reserved_following_plan()) {
    if (peak->zero() || heap.maps_plan()) budget.unsettled();
    // Storages offloaded for lack of room would otherwise have been reserved.
    const Bytes reclaimed = device.take_reclaimed();
    budget.reserved_following_plan(reclaimed.zero() ? *peak : budget.budget() + reclaimed);
  }
  budget.shortfall(heap.take_plan_shortfall());
}

/// A difference below this share is not reported a second time.
constexpr std::uint64_t kAlikeShare = 1024;
/// Likewise for warnings of different steps.
constexpr std::uint64_t kAlikeWarnings = 16;

}  // namespace

void Runtime::not_offloaded(const Site& site, Bytes size) {
  if (in_forked_child()) return;
  const LightLock lock(mutex_);
  Tag* const tag = running_tag_locked(site);
  if (tag == nullptr) return;
  if (tag->budget) {
    tag->budgets.at(site.device).not_offloaded();
  } else {
    tag->chooser.not_offloaded(site.index);
  }
  tag->step.skip(SkipReason::kNoHostMemory, size);
}

void Runtime::stays(const Site& site) {
  if (in_forked_child()) return;
  const LightLock lock(mutex_);
  Tag* const tag = running_tag_locked(site);
  if (tag != nullptr && !tag->budget) tag->chooser.not_offloaded(site.index);
}

void Runtime::alive_at_unpack(const Site& site, Bytes) {
  if (in_forked_child()) return;
  const LightLock lock(mutex_);
  Tag* const tag = running_tag_locked(site);
  if (tag == nullptr || tag->budget) return;  // a budget detects that nothing was offloaded
  tag->chooser.alive_at_unpack(site.index);
}

void Runtime::unreferenced(const Site& site) {
  if (in_forked_child()) return;
  const LightLock lock(mutex_);
  Tag* const tag = running_tag_locked(site);
  if (tag == nullptr || tag->budget) return;
  tag->chooser.unreferenced(site.index);
}

void Runtime::used(const Site& site) {
  // Most uses are not the first one of a backward pass.
  if (!undisturbed_.load(std::memory_order_relaxed) || in_forked_child()) return;
  const LightLock lock(mutex_);
  Tag* const tag = running_tag_locked(site);
  if (tag == nullptr || tag->budget) return;
  const bool at_once =
      site.tag == last_saved_.tag && site.step == last_saved_.step &&
      tag->chooser.node_index(site.index) == tag->chooser.node_index(last_saved_.index);
  if (at_once) {
    tag->chooser.used_at_once(site.index);
  } else {
    undisturbed_.store(false, std::memory_order_relaxed);
  }
}

std::vector<Site> Runtime::due_with(const Site& site) const {
  if (in_forked_child()) return {};
  const LightLock lock(mutex_);
  const auto tag = tags_.find(site.tag);
  if (site.step != step_ || tag == tags_.end()) return {};
  const auto budget = tag->second.budgets.find(site.device);
  if (budget == tag->second.budgets.end()) return {};
  std::vector<Site> due;
  for (const std::size_t index : budget->second.due_with(site.index)) {
    due.push_back(site);
    due.back().index = index;
  }
  return due;
}

void Runtime::skipped(TagId tag, SkipReason reason, Bytes size) {
  if (in_forked_child()) return;
  const LightLock lock(mutex_);
  Tag* const found = find_tag_locked(tag);
  if (found == nullptr) return;
  use_locked(tag, *found);
  found->step.skip(reason, size);
}

void Runtime::stays(TagId tag, Bytes size) {
  if (in_forked_child()) return;
  const LightLock lock(mutex_);
  Tag* const found = find_tag_locked(tag);
  if (found == nullptr) return;
  use_locked(tag, *found);
  found->step.offloadable += size;
}

void Runtime::left_to_recompute(TagId tag, Bytes size) {
  if (in_forked_child()) return;
  const LightLock lock(mutex_);
  Tag* const found = find_tag_locked(tag);
  if (found == nullptr) return;
  use_locked(tag, *found);
  found->step.left_to_recompute += size;
}

void Runtime::recomputed(TagId tag, Bytes size) {
  if (in_forked_child()) return;
  const LightLock lock(mutex_);
  if (Tag* const found = find_tag_locked(tag)) found->step.recomputed += size;
}

void Runtime::offloaded(const Site& site, Bytes size, Bytes copied) {
  if (in_forked_child()) return;
  const LightLock lock(mutex_);
  Tag* const tag = running_tag_locked(site);
  if (tag == nullptr) return;
  if (where_it_helps_ == site.tag) offloads_ = true;
  tag->step.offloaded += size;
  tag->step.copied += copied;
}

void Runtime::copied(const Site& site, Bytes bytes) {
  if (in_forked_child()) return;
  const LightLock lock(mutex_);
  if (Tag* const tag = running_tag_locked(site)) tag->step.copied += bytes;
}

void Runtime::fetched(const Site& site, Bytes bytes) {
  if (in_forked_child()) return;
  const LightLock lock(mutex_);
  if (Tag* const tag = running_tag_locked(site)) tag->step.fetched += bytes;
}

void Runtime::handle_made() {
  if (in_forked_child()) return;
  live_handles_.fetch_add(1, std::memory_order_relaxed);
  if (handles_made_.load(std::memory_order_relaxed)) return;
  handles_made_ = true;
  begin_phase(StepPhase::kForward);
}

bool Runtime::handle_gone() {
  if (in_forked_child()) return false;
  const std::int64_t left = live_handles_.fetch_sub(1, std::memory_order_acq_rel) - 1;
  SPILLWAY_CHECK(left >= 0);
  if (left > 0) return false;
  std::optional<std::uint64_t> shape;
  bool ended = false;
  {
    const LightLock lock(mutex_);
    const std::uint64_t step = step_;
    if (live_handles_ == 0 && (unpacked_ || open_regions_ == 0)) shape = close_step_locked();
    ended = step_ != step;
  }
  if (shape) fit_host_memory(*shape);
  return ended;
}

void Runtime::unpacked() {
  if (in_forked_child()) return;
  if (unpacked_.load(std::memory_order_relaxed)) return;
  unpacked_ = true;
  begin_phase(StepPhase::kBackward);
}

void Runtime::end_step() {
  if (in_forked_child()) return;
  if (LifetimeRecorder::on()) LifetimeRecorder::instance().step_ended();
  std::optional<std::uint64_t> shape;
  {
    const LightLock lock(mutex_);
    shape = close_step_locked(true);
    end_optimizer_phases_locked(true);
  }
  for (DeviceRuntime* const device : made_devices())
    device->heap().end_step();
  diagnose();
  if (shape) fit_host_memory(*shape);
  if (RunLog::on()) RunLog::instance().step_ended();
}

void Runtime::use_locked(TagId id, Tag& tag) {
  if (!std::exchange(tag.used, true)) used_.push_back(id);
}

std::uint64_t Runtime::tags_visited() const {
  const LightLock lock(mutex_);
  return tags_visited_;
}

std::uint64_t Runtime::step() const {
  return in_forked_child() ? 0 : step_.load();
}

void Runtime::end_optimizer_phases() {
  if (in_forked_child()) return;
  const LightLock lock(mutex_);
  end_optimizer_phases_locked(false);
}

void Runtime::end_optimizer_phases_locked(bool optimized) {
  for (const TagId id : std::exchange(in_optimizer_phase_, {})) {
    Tag& tag = tags_.at(id);
    if (std::exchange(tag.in_optimizer_phase, false)) close_budgets_locked(tag, true, optimized);
  }
}

std::optional<std::uint64_t> Runtime::close_step_locked(bool optimized) {
  // A step without a backward pass is incomplete: an exception, or an evaluation with gradients on.
  const bool whole = unpacked_;
  std::vector<TagId> ended = std::exchange(used_, {});
  std::sort(ended.begin(), ended.end());
  for (const TagId id : ended) {
    Tag& tag = tags_.at(id);
    ++tags_visited_;
    close_tag_locked(id, tag, whole, optimized);
    tag.step.step = step_;
    if (RunLog::on()) RunLog::instance().tag_step_ended(id, tag.step);
    movable_ += tag.step.offloadable;
    left_to_recompute_ += tag.step.left_to_recompute;
    tag.last = std::exchange(tag.step, {});
    tag.used = false;
  }
  unpacked_ = false;
  if (handles_made_.exchange(false)) {
    for (const auto& [id, device] : devices_) {
      if (whole) {
        device->step_peaks().begin(StepPhase::kOptimizer);
      } else {
        device->step_peaks().abandon();
      }
    }
  }
  const std::uint64_t shape = std::exchange(shape_, 0);
  if (ended.empty()) return std::nullopt;
  ++step_;
  return whole ? std::optional(shape) : std::nullopt;
}

void Runtime::close_tag_locked(TagId id, Tag& tag, bool whole, bool optimized) {
  if (tag.budget) {
    if (whole && !optimized) {
      if (!tag.in_optimizer_phase) in_optimizer_phase_.push_back(id);
      begin_optimizer_phase_locked(tag);
    } else {
      close_budgets_locked(tag, whole, optimized);
    }
  }
  tag.whole = tag.whole || whole;
  if (whole) {
    tag.chooser.end_step();
  } else {
    tag.chooser.abandon_step();
  }
}

void Runtime::begin_optimizer_phase_locked(Tag& tag) {
  tag.in_optimizer_phase = true;
  for (auto& [id, budget] : tag.budgets) {
    if (budget.seen() == 0) continue;
    devices_.at(id)->step_recording().end();
    AllocationCurve& curve = devices_.at(id)->curve();
    curve.begin_optimizer_phase();
    devices_.at(id)->heap().begin_optimizer_phase();
    tag.reserved[id] = devices_.at(id)->heap().most_reserved();
    budget.reserved(tag.reserved[id], fewest_reserved(*devices_.at(id)));
    if (!budget.exceeds(curve.peak())) continue;
    if (const auto missing = budget.shortage(curve.so_far())) {
      note_budget_miss_locked(tag, miss_on(*devices_.at(id), budget, *missing));
    }
  }
}

BudgetMiss Runtime::miss_on(const DeviceRuntime& device,
                            const BudgetChooser& budget,
                            const BudgetShortage& shortage) {
  const DeviceRuntime::BudgetStep step = device.budget_step();
  BudgetMiss miss{device.device().id, budget.budget(), shortage, step.number, step.shape};
  miss.first = budget.optimized_steps() == 0;
  return miss;
}

void Runtime::close_budgets_locked(Tag& tag, bool whole, bool optimized) {
  for (auto& [id, budget] : tag.budgets) {
    if (budget.seen() == 0) continue;
    StepRecording& recording = devices_.at(id)->step_recording();
    if (whole) {
      recording.end();
    } else {
      recording.stop();
    }
    const StepCurve curve = devices_.at(id)->curve().end(optimized);
    if (!whole) {
      devices_.at(id)->heap().take_plan_shortfall();
      budget.abandon_step();
      continue;
    }
    read_memory(*devices_.at(id), budget);
    // Without an optimizer step, events after the backward pass do not belong to the step.
    budget.reserved(optimized ? devices_.at(id)->heap().most_reserved() : tag.reserved[id],
                    fewest_reserved(*devices_.at(id)));
    const auto excess = budget.excess(curve);
    const auto missing = budget.end_step(curve, optimized);
    if (missing) {
      note_budget_miss_locked(tag, miss_on(*devices_.at(id), budget, *missing));
    } else if (excess) {
      BudgetMiss miss = miss_on(*devices_.at(id), budget, *excess);
      miss.adapts = miss.warns = true;
      note_budget_miss_locked(tag, std::move(miss));
    }
    if (optimized && budget_miss_ && budget_miss_->device == id) {
      budget_miss_->first = budget.optimized_steps() == 1;
      budget_miss_->shortage.lower_bound = false;  // its micro-batches are tracked to their end
    }
    end_elsewhere_locked(id, tag);
  }
  tag.reported = Bytes{};
}

void Runtime::end_elsewhere_locked(DeviceId device, const Tag& tag) {
  for (const TagId other : budgeted_) {
    Tag& each = tags_.at(other);
    ++tags_visited_;
    const auto found = each.budgets.find(device);
    if (&each != &tag && found != each.budgets.end()) found->second.ended_elsewhere();
  }
}

void Runtime::note_budget_miss_locked(Tag& tag, BudgetMiss miss) {
  const Bytes least = miss.shortage.least;
  // The program cannot change the device's memory: only out-of-memory errors apply.
  if (tag.budget->rest) return;
  miss.warns = miss.warns || tag.budget->warns;
  Bytes& warned = miss.adapts ? tag.warned_that_adapts : tag.warned;
  if (miss.warns && least <= warned + Bytes{warned.count() / kAlikeWarnings}) return;
  if (budget_miss_ && budget_miss_->device == miss.device && budget_miss_->budget == miss.budget) {
    // The earlier miss was not reported yet. A miss that does not adapt has priority, then a larger
    // one.
    if (miss.adapts && !budget_miss_->adapts) return;
    if (miss.adapts == budget_miss_->adapts && least < budget_miss_->shortage.least) return;
  } else if (least <= tag.reported + Bytes{tag.reported.count() / kAlikeShare}) {
    return;  // the optimizer step adds no information unless it needs more
  }
  tag.reported = least;
  if (miss.warns) warned = least;
  budget_miss_ = std::move(miss);
}

bool Runtime::budget_missed() const {
  if (in_forked_child()) return false;
  const LightLock lock(mutex_);
  return budget_miss_.has_value();
}

std::optional<BudgetMiss> Runtime::take_budget_miss() {
  if (in_forked_child()) return std::nullopt;
  const LightLock lock(mutex_);
  return std::exchange(budget_miss_, std::nullopt);
}

void Runtime::fit_host_memory(std::uint64_t shape) {
  for (DeviceRuntime* device : made_devices())
    device->arena().end_step(shape);
}

}  // namespace spillway
