// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/measured_times.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace spillway {
namespace {

/// The median of so many is believed.
constexpr std::size_t kSeen = 3;
/// What changes by a smaller share than this, or than such steps differ by, makes no plan anew.
constexpr double kSurprise = 0.001;
/// So often something else is believed at most.
constexpr int kMostRounds = 6;
/// Some jobs hold up each of their steps, or have ever new plans: those are believed as they are.
constexpr int kMostHeldUp = 8;
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
  ++steps_;
  if (held_up) {
    if (!quickest_ || times.end < quickest_->end) quickest_ = times;
    if (++held_up_ < kMostHeldUp && steps_ < kMostSteps) return false;
    done_ = true;
    if (seen_.empty()) seen_.push_back(*quickest_);
  } else {
    held_up_ = 0;
    seen_.push_back(times);
    done_ = steps_ >= kMostSteps;
    if (seen_.size() < kSeen && !done_) return false;
  }
  return believe();
}

bool MeasuredTimes::believe() {
  const StepTimes now = typical(believed_, seen_);
  double least = seconds_of(seen_.front(), seen_.front());
  double most = least;
  for (const StepTimes& each : seen_) {
    least = std::min(least, seconds_of(each, each));
    most = std::max(most, seconds_of(each, each));
  }
  const double before = seconds_of(believed_, seen_.back());
  const double change = std::abs(seconds_of(now, seen_.back()) - before);
  seen_.clear();
  if (change <= std::max(kSurprise * before, most - least)) {
    done_ = true;
    return false;
  }
  believed_ = now;
  done_ = done_ || ++rounds_ >= kMostRounds;
  return true;
}

}  // namespace spillway
