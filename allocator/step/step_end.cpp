// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/check.h"
#include "allocator/device/fork.h"
#include "allocator/lifetime/memory_events.h"
#include "allocator/step/step_session.h"

#include <algorithm>
#include <utility>

// The phases of a step, and its end.
namespace spillway {

void StepSession::advance(StepEvent event) {
  StepPhase phase = phase_.load(std::memory_order_relaxed);
  do {
    if (transition(phase, event) == phase) return;
  } while (!phase_.compare_exchange_weak(phase, transition(phase, event)));
  const StepPhase next = transition(phase, event);
  for (DeviceRuntime* const device : devices_.made()) {
    if (event == StepEvent::kEnded && next == StepPhase::kOutside) {
      device->step_peaks().abandon();
    } else if (event != StepEvent::kStepped) {  // diagnose() ends the step in the peaks
      device->step_peaks().begin(next);
    }
  }
}

void StepSession::handle_made() {
  if (in_forked_child()) return;
  handles_.fetch_add(1, std::memory_order_relaxed);
  advance(StepEvent::kSaved);
}

bool StepSession::handle_gone() {
  if (in_forked_child()) return false;
  const std::int64_t left = handles_.fetch_sub(1, std::memory_order_acq_rel) - 1;
  SPILLWAY_CHECK(left >= 0);
  return left == 0 && end(StepEnd::kHandlesReleased);
}

void StepSession::unpacked() {
  if (in_forked_child()) return;
  advance(StepEvent::kUnpacked);
}

bool StepSession::applies_locked(StepEnd reason) const {
  const StepPhase phase = phase_;
  switch (reason) {
    case StepEnd::kHandlesReleased:
      return handles_ == 0 && (phase == StepPhase::kBackward || open_regions_ == 0);
    case StepEnd::kRegionsLeft:
      return handles_ == 0 && open_regions_ == 0 && has_saved(phase);
    case StepEnd::kNextBegins:
    case StepEnd::kOptimizerStepped:
    case StepEnd::kRequested:
      return true;
  }
  return true;
}

bool StepSession::end(StepEnd reason) {
  if (in_forked_child()) return false;
  const bool optimized = ends_optimizer_step(reason);
  std::optional<std::uint64_t> shape;
  bool ended = false;
  {
    const Lock lock(mutex_);
    if (!applies_locked(reason)) return false;
    const std::uint64_t step = step_;
    if (reason != StepEnd::kNextBegins) shape = close_locked(reason);
    if (optimized || reason == StepEnd::kNextBegins) end_optimizer_phases_locked(optimized);
    ended = step_ != step;
  }
  if (optimized) {
    advance(StepEvent::kStepped);
    for (DeviceRuntime* const device : devices_.made())
      device->heap().placement().end_step();
    diagnose();
  }
  if (shape) fit_host_memory(*shape);
  if (optimized && MemoryEvents::on()) MemoryEvents::step_ended();
  return ended;
}

std::optional<std::uint64_t> StepSession::close_locked(StepEnd reason) {
  // A step without a backward pass is incomplete: an exception, or an evaluation with gradients on.
  const bool had_backward = phase_ == StepPhase::kBackward;
  std::vector<TagId> ended = std::exchange(used_, {});
  std::sort(ended.begin(), ended.end());
  for (const TagId id : ended) {
    Tag& tag = tags_.at(id);
    ++tags_visited_;
    close_tag_locked(id, tag, had_backward, reason);
    tag.step.step = step_;
    if (MemoryEvents::on()) MemoryEvents::tag_step_ended(id, tag.step);
    offloadable_ += tag.step.offloadable;
    left_to_recompute_ += tag.step.left_to_recompute;
    tag.last = std::exchange(tag.step, {});
    tag.used = false;
  }
  advance(StepEvent::kEnded);
  const std::uint64_t shape = std::exchange(shape_, 0);
  if (ended.empty()) return std::nullopt;
  ++step_;
  return had_backward ? std::optional(shape) : std::nullopt;
}

void StepSession::close_tag_locked(TagId id, Tag& tag, bool had_backward, StepEnd reason) {
  tag.had_backward = tag.had_backward || had_backward;
  if (had_backward && !ends_optimizer_step(reason) && tag.budget) {
    if (!std::exchange(tag.in_optimizer_phase, true)) in_optimizer_phase_.push_back(id);
    note_locked(tag, tag.policy->on_backward_end());
  } else {
    end_budgets_locked(tag, had_backward, ends_optimizer_step(reason));
  }
}

void StepSession::end_optimizer_phases_locked(bool optimized) {
  for (const TagId id : std::exchange(in_optimizer_phase_, {})) {
    Tag& tag = tags_.at(id);
    if (std::exchange(tag.in_optimizer_phase, false)) end_budgets_locked(tag, true, optimized);
  }
}

void StepSession::end_budgets_locked(Tag& tag, bool had_backward, bool optimized) {
  note_locked(tag, tag.policy->on_end(had_backward, optimized));
  tag.reported.in_step = Bytes{};
  if (tag.budgets == nullptr) return;
  for (const DeviceId device : tag.budgets->ended()) {
    if (optimized) misses_.confirm(device, tag.budgets->on(device)->counts().optimized_steps == 1);
    // None of the other budgets' steps has ended there.
    for (const TagId other : budgeted_) {
      Tag& each = tags_.at(other);
      ++tags_visited_;
      BudgetChooser* const budget = &each == &tag ? nullptr : each.budgets->on(device);
      if (budget != nullptr) budget->ended_elsewhere();
    }
  }
}

void StepSession::note_locked(Tag& tag, std::vector<BudgetMiss> misses) {
  for (BudgetMiss& miss : misses) {
    // The program cannot change the device's memory: only out-of-memory errors apply.
    if (tag.budget->rest) continue;
    miss.warns = miss.warns || tag.budget->warns;
    misses_.note(std::move(miss), tag.reported);
  }
}

bool StepSession::budget_missed() const {
  if (in_forked_child()) return false;
  const Lock lock(mutex_);
  return misses_.any();
}

std::optional<BudgetMiss> StepSession::take_budget_miss(bool keep_first) {
  if (in_forked_child()) return std::nullopt;
  const Lock lock(mutex_);
  return misses_.take(keep_first);
}

void StepSession::fit_host_memory(std::uint64_t shape) {
  for (DeviceRuntime* const device : devices_.made())
    device->arena().end_step(shape);
}

}  // namespace spillway
