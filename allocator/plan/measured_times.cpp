// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/measured_times.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace spillway {
namespace {

/// Number of steps whose median is accepted.
constexpr std::size_t kSeen = 3;
/// A change below this share, or below the variation between steps, causes no new plan.
constexpr double kSurprise = 0.01;
/// A step that takes less than this share of the accepted times shows that the host delayed the
/// steps that these are from. Plans hardly change for less.
constexpr double kFaster = 0.99;
/// Maximum number of revisions.
constexpr int kMaxRounds = 6;
/// Some jobs stall in every third step.
constexpr int kMaxSteps = 64;

/// Compute time, plus recomputation of the storages that `like` recomputed.
double seconds_of(const StepTimes& times, const StepTimes& like) {
  double seconds = times.end;
  for (std::size_t i = 0; i < std::min(times.recompute.size(), like.recompute.size()); ++i)
    if (like.recompute[i] > 0) seconds += times.recompute[i];
  return seconds;
}

}  // namespace

bool MeasuredTimes::saw(const StepTimes& times, bool stalled) {
  if (done_) return false;
  done_ = ++steps_ >= kMaxSteps;
  if (stalled) {
    seen_.clear();
  } else {
    seen_.push_back(times);
  }
  if (seen_.size() == kSeen) {
    const bool changed = accept(std::exchange(seen_, {}));
    done_ = done_ || !changed || ++rounds_ >= kMaxRounds;
    return changed;
  }
  return rounds_ == 0 && times.end < kFaster * believed_.end && accept({times});
}

bool MeasuredTimes::accept(const std::vector<StepTimes>& seen) {
  const StepTimes now = typical(believed_, seen);
  if (!deviates(now, seen)) return false;
  believed_ = now;
  return true;
}

/// Whether the median deviates from the accepted times by more than from the nearer of the other
/// steps.
bool MeasuredTimes::deviates(const StepTimes& now, const std::vector<StepTimes>& seen) const {
  std::vector<double> seconds;
  seconds.reserve(seen.size());
  for (const StepTimes& each : seen)
    seconds.push_back(seconds_of(each, each));
  std::sort(seconds.begin(), seconds.end());
  const double middle = seconds[seconds.size() / 2];
  const double apart = std::min(middle - seconds.front(), seconds.back() - middle);
  const double before = seconds_of(believed_, seen.back());
  const double change = std::abs(seconds_of(now, seen.back()) - before);
  return change > std::max(kSurprise * before, apart);
}

}  // namespace spillway
