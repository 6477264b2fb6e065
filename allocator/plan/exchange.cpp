// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/exchange.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace spillway {
namespace {

/// Number of tries for a step with a thousand candidates. It falls with the square of the number of
/// candidates, because each try visits all of them.
constexpr double kMaxTries = 20;

/// Copy-out time of all offloaded candidates.
double out_seconds(const StepProfile& profile, const BudgetPlan& plan) {
  double seconds = 0;
  for (std::size_t candidate = 0; candidate < plan.actions.size(); ++candidate) {
    if (plan.actions[candidate] == Action::kOffload) seconds += profile.out_seconds(candidate);
  }
  return seconds;
}

class Exchange {
 public:
  Exchange(const StepProfile& profile,
           const Uses& uses,
           const PeakProfile& offloaded,
           BudgetPlan& best)
      : profile_(profile),
        uses_(uses),
        best_(best),
        room_(offloaded),
        tried_room_(offloaded),
        most_out_(std::max(profile.seconds_of_saving(), out_seconds(profile, best))) {
    room_.follow(best.actions);
    for (std::size_t candidate = 0; candidate < best.actions.size(); ++candidate) {
      const bool is_released = best.actions[candidate] != Action::kKeep;
      if (is_released && profile.candidates[candidate].recompute &&
          is_expensive(profile, candidate))
        expensive_.push_back(candidate);
    }
    const double thousands = static_cast<double>(best.actions.size()) / 1000;
    left_ = static_cast<std::size_t>(kMaxTries / (thousands * thousands));
  }

  void run() {
    while (left_ > 0 && (single_ones() || pairs())) {
    }
  }

 private:
  bool single_ones() {
    bool better = false;
    for (const std::size_t candidate : expensive_)
      better |= try_other_way(candidate, candidate);
    return better;
  }

  bool pairs() {
    bool better = false;
    for (const std::size_t one : expensive_) {
      for (const std::size_t other : expensive_) {
        if (one < other && best_.actions[one] != best_.actions[other])
          better |= try_other_way(one, other);
      }
    }
    return better;
  }

  /// Switches both, or the one if they are equal.
  bool try_other_way(std::size_t one, std::size_t other) {
    if (left_ == 0) return false;
    --left_;
    BudgetPlan plan = best_;
    for (const std::size_t candidate : {one, other}) {
      const bool offloads = best_.actions[candidate] == Action::kOffload;
      plan.actions[candidate] = offloads ? Action::kRecompute : Action::kOffload;
    }
    if (out_seconds(profile_, plan) > most_out_) return false;
    PeakProfile& room = tried_room_;
    room = room_;
    follow(plan, one, room);
    if (other != one) follow(plan, other, room);
    complete(profile_, uses_, room, best_.budget, plan);
    if (plan.timing.total() >= best_.timing.total()) return false;
    // A recomputed candidate may need its operands at the same time.
    if (plan.peak > std::max(best_.peak, best_.budget)) return false;
    best_ = std::move(plan);
    follow(best_, one, room_);
    if (other != one) follow(best_, other, room_);
    return true;
  }

  static void follow(const BudgetPlan& plan, std::size_t candidate, PeakProfile& room) {
    if (plan.actions[candidate] == Action::kOffload) {
      room.offload(candidate);
    } else {
      room.compute(candidate);
    }
  }

  const StepProfile& profile_;
  const Uses& uses_;
  BudgetPlan& best_;
  PeakProfile room_;        // with the kept candidates
  PeakProfile tried_room_;  // reused by each try
  const double most_out_;
  std::vector<std::size_t> expensive_;  // and offloaded or recomputed
  std::size_t left_ = 0;                // tries
};

}  // namespace

bool is_expensive(const StepProfile& profile, std::size_t candidate) {
  constexpr double kShare = 0.06;
  return profile.timed() &&
         *profile.candidates[candidate].recompute > kShare * profile.out_seconds(candidate);
}

void exchange_expensive(const StepProfile& profile,
                        const Uses& uses,
                        const PeakProfile& offloaded,
                        BudgetPlan& plan) {
  Exchange(profile, uses, offloaded, plan).run();
}

}  // namespace spillway
