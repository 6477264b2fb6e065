// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/measured_times.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace spillway {
namespace {

/// The median of so many is believed.
constexpr std::size_t kSeen = 3;
/// What changes by a smaller share than this, or than such steps differ by, makes no plan anew.
constexpr double kSurprise = 0.001;
/// So often something else is believed at most.
constexpr int kMostRounds = 6;
/// Where so many in a row are held up the quickest is believed for now: some jobs hold up each
/// step.
constexpr int kMostHeldUp = 8;
/// And some have ever new plans.
constexpr int kMostSteps = 64;

/// Of computing, and of computing again what `like` has computed again.
double seconds_of(const StepTimes& times, const StepTimes& like) {
  double seconds = times.end;
  for (std::size_t i = 0; i < std::min(times.rebuild.size(), like.rebuild.size()); ++i)
    if (like.rebuild[i] > 0) seconds += times.rebuild[i];
  return seconds;
}

}  // namespace

bool MeasuredTimes::saw(const StepTimes& times, bool held_up) {
  if (done_) return false;
  done_ = ++steps_ >= kMostSteps;
  if (held_up) {
    if (!quickest_ || times.end < quickest_->end) quickest_ = times;
    if (++held_up_ == kMostHeldUp) return believe({*quickest_});
  } else {
    held_up_ = 0;
    seen_.push_back(times);
  }
  if (seen_.size() < kSeen && !(done_ && !seen_.empty())) return false;
  const bool changed = believe(std::exchange(seen_, {}));
  done_ = done_ || !changed || ++rounds_ >= kMostRounds;
  return changed;
}

bool MeasuredTimes::believe(const std::vector<StepTimes>& seen) {
  const StepTimes now = typical(believed_, seen);
  double least = seconds_of(seen.front(), seen.front());
  double most = least;
  for (const StepTimes& each : seen) {
    least = std::min(least, seconds_of(each, each));
    most = std::max(most, seconds_of(each, each));
  }
  const double before = seconds_of(believed_, seen.back());
  const double change = std::abs(seconds_of(now, seen.back()) - before);
  if (change <= std::max(kSurprise * before, most - least)) return false;
  believed_ = now;
  return true;
}

}  // namespace spillway
