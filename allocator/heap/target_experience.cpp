// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/target_experience.h"

#include <algorithm>

namespace spillway {
namespace {

constexpr int kMaxTrims = 4;
constexpr std::size_t kMaxTargets = 256;
/// In the first step of a replay plan, the earlier memory of its blocks is still reserved.
constexpr int kFirstAlike = 2;
/// Attempts per target; the rest is left to the caller that has set it.
constexpr int kMaxGivenUp = 4;

}  // namespace

TargetExperience::Known* TargetExperience::known(Bytes target) {
  if (targets_.size() >= kMaxTargets && !targets_.contains(target)) return nullptr;
  return &targets_[target];
}

bool TargetExperience::should_trim(Bytes target) {
  Known* const here = known(target);
  return here != nullptr && here->trims++ < kMaxTrims;
}

Bytes TargetExperience::to_leave(Bytes target) const {
  const auto found = targets_.find(target);
  return found == targets_.end() ? Bytes{} : found->second.to_leave;
}

bool TargetExperience::rejects(Bytes target, Bytes size, Bytes leaves, Bytes room) {
  Known* const here = known(target);
  const Bytes needed = size + leaves;
  if (here == nullptr || needed <= room || here->rejected++ >= kMaxGivenUp) return false;
  shortfall_ = {target, needed - room};
  return true;
}

Bytes TargetExperience::take_shortfall(Bytes target) {
  const auto [of, bytes] = std::exchange(shortfall_, {});
  return of == target ? bytes : Bytes{};
}

bool TargetExperience::gives_up(Bytes target, Bytes most, const Followed& plan) {
  if (target.zero() || plan.steps < kFirstAlike || most <= target) return false;
  Known* const here = known(target);
  if (here == nullptr || here->given_up >= kMaxGivenUp) return false;
  // If leaving more room has not made the replay plan smaller, dropping it does not help.
  const auto [size, requests] = here->last_given_up;
  if (requests == plan.requests && plan.size >= size) return false;
  ++here->given_up;
  here->last_given_up = {plan.size, plan.requests};
  here->to_leave = std::max(here->to_leave, saturating_sub(plan.room, plan.size) + (most - target));
  return true;
}

}  // namespace spillway
