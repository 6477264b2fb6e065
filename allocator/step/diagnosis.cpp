// SPDX-License-Identifier: Apache-2.0
#include "allocator/device/fork.h"
#include "allocator/step/step_session.h"

#include <algorithm>
#include <map>
#include <utility>

// Whether offloading lowers the peak.
namespace spillway {

void StepSession::diagnose() {
  const std::vector<DeviceRuntime*> devices = devices_.made();
  const bool elsewhere = saved_elsewhere_.exchange(false);
  const Lock lock(mutex_);
  const Bytes recomputed = std::exchange(left_to_recompute_, {});
  const bool offloads = std::exchange(offloads_, false);
  const bool nothing_saved = std::exchange(offloadable_, {}).zero() && recomputed.zero();
  std::optional<CannotHelp> found;
  std::map<DeviceId, Bytes> peaks;
  bool lowers = false;
  bool still = true;  // they still need as much as when it was found
  for (DeviceRuntime* const device : devices) {
    const DeviceId id = device->device().id;
    const Bytes stashed = device->residency().stats().stashed;
    const Bytes before = std::exchange(stashed_[id], stashed);
    const StepFacts facts{device->step_peaks().end_step(),
                          stashed - before,
                          recomputed,
                          elsewhere,
                          compiled_.load(std::memory_order_relaxed)};
    const auto why = why_peak_is_not_lowered(id, facts);
    const StepPeaks::Peaks recent = device->step_peaks().recent();
    peaks[id] = highest(recent).allocated;
    still = still && needs_no_offloading(cannot_help_.reason, kept_at_[id], recent);
    lowers = lowers || (!why && !facts.offloaded.zero());
    if (why && (!found || why->bytes > found->bytes)) found = why;
  }
  if (keeps_) {
    if (!offloads && still) return;
    keeps_ = false;
    cannot_help_ = {};
    helpless_.withdraw();
    for (DeviceRuntime* const device : devices) {
      device->step_peaks().follow_all(false);
      device->step_peaks().forget();
    }
    return;
  }
  if (elsewhere && nothing_saved) found = CannotHelp{HelplessReason::kOtherOffloader, {}, {}};
  if (lowers) found.reset();  // of several devices, one needs less
  const CannotHelp after = helpless_.after(found);
  if (cannot_help_.reason == HelplessReason::kModelState) return;
  cannot_help_ = after;
  // Peaks are known if the memory is Spillway's: resident storages can then be offloaded under
  // pressure.
  keeps_ = where_it_helps_ && !after.bytes.zero();
  if (!keeps_) return;
  kept_at_ = std::move(peaks);
  for (DeviceRuntime* const device : devices)
    device->step_peaks().follow_all(true);
}

void StepSession::offload_if_it_helps(TagId tag) {
  const Lock lock(mutex_);
  where_it_helps_ = tag;
}

bool StepSession::has_budget() const {
  if (in_forked_child()) return false;
  const Lock lock(mutex_);
  bool found = false;
  for (const TagId tag : budgeted_)
    found = found || !tags_.at(tag).budget->rest;
  return found;
}

void StepSession::model_state(DeviceId device, Bytes bytes) {
  if (in_forked_child()) return;
  const Lock lock(mutex_);
  DeviceRuntime* const made = devices_.if_made(device);
  if (made == nullptr) return;
  for (const TagId tag : budgeted_) {
    const Budget& budget = *tags_.at(tag).budget;
    if (budget.rest || (budget.bytes.zero() && !made->budget().has_memory())) continue;
    const Bytes most = made->budget().bytes_of(budget);
    if (bytes > most) cannot_help_ = {HelplessReason::kModelState, device, bytes - most};
  }
}

}  // namespace spillway
