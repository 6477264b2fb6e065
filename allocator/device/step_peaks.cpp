// SPDX-License-Identifier: Apache-2.0
#include "allocator/device/step_peaks.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

void raise(StepPeaks::Peak& peak, const StepPeaks::Peak& by) {
  if (by.allocated > peak.allocated) {
    peak.allocated = by.allocated;
    peak.largest = by.largest;
  }
  peak.without = std::max(peak.without, by.without);
}

}  // namespace

void StepPeaks::begin(StepPhase phase) {
  const LightLock lock(mutex_);
  if (phase == StepPhase::kForward) {
    if (phase_ == StepPhase::kOptimizer) add(StepPhase::kOptimizer, StepPhase::kOutside);
  }
  phase_ = phase;
  const bool between = phase == StepPhase::kOutside;
  on_ = between || follow_all_ || steps_ < kFollowed || steps_ % kEach == 0;
}

void StepPeaks::abandon() {
  const LightLock lock(mutex_);
  add(StepPhase::kForward, StepPhase::kOutside);
  phase_ = StepPhase::kOutside;
  on_ = true;
}

void StepPeaks::add(StepPhase from, StepPhase to) {
  Peak& moved = running_.at(static_cast<std::size_t>(from));
  raise(running_.at(static_cast<std::size_t>(to)), std::exchange(moved, {}));
}

void StepPeaks::allocated(Bytes size, Bytes allocated, Bytes offloaded) {
  const LightLock lock(mutex_);
  recent_.at(next_++ % kRecent) = size;
  Peak& peak = running_.at(static_cast<std::size_t>(phase_));
  raise(peak,
        {allocated, *std::max_element(recent_.begin(), recent_.end()), allocated + offloaded});
}

StepPeaks::Peaks StepPeaks::end_step() {
  const LightLock lock(mutex_);
  if (!on_ && phase_ == StepPhase::kOutside) return all_;  // no step has begun yet
  ++steps_;
  if (++young_steps_ > kRecentSteps) {
    old_ = std::exchange(young_, {});
    young_steps_ = 1;
  }
  for (std::size_t phase = 0; phase < all_.size(); ++phase) {
    raise(young_.at(phase), running_.at(phase));
    raise(all_.at(phase), std::exchange(running_.at(phase), {}));
  }
  phase_ = StepPhase::kOutside;
  on_ = true;
  return all_;
}

StepPeaks::Peaks StepPeaks::recent() {
  const LightLock lock(mutex_);
  Peaks peaks = old_;
  for (std::size_t phase = 0; phase < peaks.size(); ++phase)
    raise(peaks.at(phase), young_.at(phase));
  return peaks;
}

void StepPeaks::follow_all(bool all) {
  const LightLock lock(mutex_);
  follow_all_ = all;
}

void StepPeaks::forget() {
  const LightLock lock(mutex_);
  steps_ = young_steps_ = 0;
  running_ = all_ = young_ = old_ = {};
}

}  // namespace spillway
