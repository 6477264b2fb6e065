// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/shared_room.h"

#include "allocator/plan/planner.h"
#include "tests/plan/profiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace spillway {
namespace {

using namespace literals;
using test_steps::budgets_of;
using test_steps::random_step;

/// A random step, and as much model state as the step needs at most, in the room for two thirds of
/// both.
struct Shared {
  explicit Shared(std::mt19937_64& random)
      : step(random_step(random, 10 + random() % 40)),
        all(budgets_of(step, 1).back()),
        within(Bytes{all.count() * 4 / 3}) {}

  [[nodiscard]] BudgetPlan plan() const {
    return plan_beside(step, within, {all}, least_peak(step));
  }

  [[nodiscard]] double seconds(const BudgetPlan& plan) const {
    return plan.timing.total() + seconds_of_model_state(step, plan.peak, within, all);
  }

  StepProfile step;
  Bytes all;
  Bytes within;
};

TEST(SharedRoomTest, AStepAndItsModelStateTakeHardlyLongerThanWithTheBestRoomOfAll) {
  std::mt19937_64 random(5);
  double sum = 0;
  constexpr int kTrials = 100;
  for (int trial = 0; trial < kTrials; ++trial) {
    const Shared shared(random);
    const BudgetPlan plan = shared.plan();
    ASSERT_EQ(check_plan(shared.step, plan, plan.budget), std::nullopt) << "trial " << trial;
    double best = shared.seconds(plan);
    for (const Bytes room : budgets_of(shared.step, 50))
      if (room <= shared.within)
        best = std::min(best, shared.seconds(plan_step(shared.step, room)));
    ASSERT_LE(shared.seconds(plan), best * 1.15) << "trial " << trial;
    sum += shared.seconds(plan) / best;
  }
  EXPECT_LE(sum / kTrials, 1.02);
}

TEST(SharedRoomTest, OverASlowLinkAllModelStateStays) {
  std::mt19937_64 random(6);
  for (int trial = 0; trial < 50; ++trial) {
    Shared shared(random);
    // Steps that are only recomputed do not use the link.
    for (Candidate& candidate : shared.step.candidates)
      if (!candidate.windows.empty()) candidate.recompute = 1e-6;
    shared.step.link.in = shared.step.link.out = 1;
    const Bytes least = least_peak(shared.step);
    const Bytes left = std::max(least, saturating_sub(shared.within, shared.all));
    EXPECT_LE(shared.plan().peak, left) << "trial " << trial;
  }
}

TEST(SharedRoomTest, OverAFastLinkTheStepGetsTheRoomThatItUses) {
  std::mt19937_64 random(7);
  int moved = 0;
  for (int trial = 0; trial < 50; ++trial) {
    Shared shared(random);
    for (Candidate& candidate : shared.step.candidates)
      if (!candidate.windows.empty()) candidate.recompute = 1;
    shared.step.link.in = shared.step.link.out = 1e15;
    const BudgetPlan plan = shared.plan();
    const BudgetPlan beside_all = plan_step(
        shared.step, std::max(least_peak(shared.step), saturating_sub(shared.within, shared.all)));
    EXPECT_LE(plan.timing.total(), beside_all.timing.total() * (1 + 1e-9)) << "trial " << trial;
    moved += plan.peak > beside_all.peak ? 1 : 0;
  }
  EXPECT_GT(moved, 0);
}

TEST(SharedRoomTest, WhatFitsBesideModelStateIsKept) {
  std::mt19937_64 random(8);
  const Shared shared(random);

  const BudgetPlan plan =
      plan_beside(shared.step, shared.all + 1000_B, {1000_B}, least_peak(shared.step));

  EXPECT_EQ(plan.bytes(shared.step, Action::kOffload) + plan.bytes(shared.step, Action::kRecompute),
            0U);
}

}  // namespace
}  // namespace spillway
