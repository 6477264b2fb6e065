// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/recompute_trial.h"

#include <algorithm>

namespace spillway {
namespace {

/// There is room to recompute if this share of the budget is free with everything offloaded.
constexpr std::uint64_t kRoomShare = 8;

/// Each time that recomputation exceeds the budget again, the number of steps that only offload
/// grows by this factor.
constexpr std::uint64_t kBackoff = 4;

}  // namespace

void RecomputeTrial::begin_step(Bytes first) {
  const bool too_large = largest_ && first > std::max(*largest_, roomy_);
  on_ = offloading_steps_ == 0 && !too_large;
}

void RecomputeTrial::recomputed(Bytes first) {
  largest_ = std::max(largest_.value_or(first), first);
}

void RecomputeTrial::needed(Bytes first, Bytes needed) {
  // If one step has fit, the next one may try.
  if (needed <= budget_) roomy_ = std::max(roomy_, first);
  const Bytes room = budget_ - Bytes{budget_.count() / kRoomShare};
  if (needed > room) return;
  // The bytes that a step needs are at most proportional to its size, in most cases.
  const double times = static_cast<double>(room.count()) / static_cast<double>(needed.count());
  const double size = times * static_cast<double>(first.count());
  const bool any = !(size < static_cast<double>(budget_.count()));
  roomy_ = any ? budget_ : std::max(roomy_, Bytes{static_cast<std::uint64_t>(size)});
}

void RecomputeTrial::end_step(bool exceeded) {
  if (offloading_steps_ > 0) {
    --offloading_steps_;
  } else if (exceeded) {
    offloading_steps_ = next_offloading_steps_;
    next_offloading_steps_ *= kBackoff;
  }
}

}  // namespace spillway
