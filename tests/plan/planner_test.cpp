// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/planner.h"

#include "allocator/plan/bound.h"
#include "allocator/plan/plan_curve.h"
#include "tests/plan/profiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace spillway {
namespace {

using namespace literals;
using test_steps::best_of_all;
using test_steps::budgets_of;
using test_steps::even_step;
using test_steps::random_step;
using test_steps::random_step_with_unwanted;

constexpr std::uint64_t kPlannerSeed = 11;

TEST(PlannerTest, PlansOfRandomStepsAreSoundAndNeverBeatTheBound) {
  std::mt19937_64 random(kPlannerSeed);
  for (int trial = 0; trial < 100; ++trial) {
    const StepProfile step = random_step(random, 1 + random() % 60);
    for (const Bytes budget : budgets_of(step, 8)) {
      const BudgetPlan plan = plan_step(step, budget);
      ASSERT_EQ(check_plan(step, plan, budget), std::nullopt) << "trial " << trial;
      ASSERT_LE(plan.peak, budget) << "trial " << trial;
      const StepBound bound = lower_bound(step, budget);
      ASSERT_GE(plan.timing.total() * (1 + 1e-9), bound.seconds) << "trial " << trial;
      ASSERT_GE(bound.seconds * (1 + 1e-9), plan.timing.compute) << "trial " << trial;
    }
  }
}

TEST(PlannerTest, TheBoundCountsNoFetchOfAnUnusedStorage) {
  std::mt19937_64 random(kPlannerSeed);
  for (int trial = 0; trial < 100; ++trial) {
    const StepProfile step = random_step_with_unwanted(random, 1 + random() % 30);
    for (const Bytes budget : budgets_of(step, 8)) {
      const BudgetPlan plan = plan_step(step, budget);
      ASSERT_EQ(check_plan(step, plan, budget), std::nullopt) << "trial " << trial;
      const double bound = lower_bound(step, budget).seconds;
      ASSERT_GE(plan.timing.total() * (1 + 1e-9), bound) << "trial " << trial;
    }
  }
}

TEST(PlannerTest, TheSameStepHasTheSamePlan) {
  std::mt19937_64 random(kPlannerSeed);
  const StepProfile step = random_step(random, 200);
  const Bytes budget = budgets_of(step, 2)[1];

  const BudgetPlan first = plan_step(step, budget);
  const BudgetPlan second = plan_step(step, budget);

  EXPECT_EQ(first.actions, second.actions);
  EXPECT_EQ(first.fetch, second.fetch);
}

TEST(PlannerTest, PlansOfSmallStepsAreNearlyAsFastAsTheBestOfAllChoices) {
  std::mt19937_64 random(kPlannerSeed);
  double sum = 0;
  int count = 0;
  for (int trial = 0; trial < 60; ++trial) {
    const StepProfile step = random_step(random, 7);
    for (const Bytes budget : budgets_of(step, 4)) {
      const double ratio = plan_step(step, budget).timing.total() / best_of_all(step, budget);
      ASSERT_GE(ratio, 1 - 1e-9);
      ASSERT_LE(ratio, 1.35) << "trial " << trial;
      sum += ratio;
      ++count;
    }
  }
  EXPECT_LE(sum / count, 1.03);
}

TEST(PlannerTest, ExpensiveStoragesAreOffloadedOrRecomputedNearlyOptimally) {
  std::mt19937_64 random(kPlannerSeed);
  double sum = 0;
  int count = 0;
  for (int trial = 0; trial < 20; ++trial) {
    StepProfile step = random_step(random, 7);
    for (Candidate& storage : step.candidates)
      storage.recompute =
          step.link.out_seconds(storage.bytes) * (0.1 + 0.01 * static_cast<double>(random() % 80));
    for (const Bytes budget : budgets_of(step, 4)) {
      sum += plan_step(step, budget).timing.total() / best_of_all(step, budget);
      ++count;
    }
  }
  EXPECT_LE(sum / count, 1.01);
}

TEST(PlannerTest, FetchesBeginAtUses) {
  std::mt19937_64 random(kPlannerSeed);
  int early = 0;
  for (int trial = 0; trial < 100; ++trial) {
    const StepProfile step = random_step_with_unwanted(random, 1 + random() % 30);
    std::set<std::size_t> uses;
    for (std::size_t candidate = 0; candidate < step.candidates.size(); ++candidate)
      uses.insert(step.first_use(candidate));
    for (const Bytes budget : budgets_of(step, 8)) {
      const BudgetPlan plan = plan_step(step, budget);
      for (std::size_t storage = 0; storage < plan.actions.size(); ++storage) {
        const std::size_t first_use = step.first_use(storage);
        if (plan.actions[storage] != Action::kOffload || first_use == step.events()) continue;
        ASSERT_TRUE(uses.count(plan.fetch[storage])) << "trial " << trial;
        if (plan.fetch[storage] < first_use) ++early;
      }
    }
  }
  EXPECT_GT(early, 0);
}

TEST(PlannerTest, IfTheLinkKeepsUpOffloadingIsFreeAndNothingIsRecomputed) {
  StepProfile step = even_step(20, 1000, {1000, 1000, 0});
  for (std::size_t storage = 0; storage < step.candidates.size(); storage += 2)
    step.candidates[storage].recompute = 0.5;

  const BudgetPlan plan = plan_step(step, 2500_B);

  EXPECT_EQ(plan.bytes(step, Action::kRecompute), 0u);
  EXPECT_EQ(plan.bytes(step, Action::kOffload), 500u);
  EXPECT_EQ(plan.timing.total(), plan.timing.compute);
}

TEST(PlannerTest, WithASlowLinkCheapStoragesAreRecomputed) {
  StepProfile step = even_step(20, 1000, {1, 1, 0});
  for (std::size_t storage = 0; storage < step.candidates.size(); storage += 2)
    step.candidates[storage].recompute = 0.5;

  const BudgetPlan plan = plan_step(step, 2500_B);

  EXPECT_EQ(plan.bytes(step, Action::kOffload), 0u);
  EXPECT_EQ(plan.bytes(step, Action::kRecompute), 500u);
  EXPECT_EQ(plan.timing.recompute, 2.5);
}

TEST(PlannerTest, ExpensiveStoragesAreOffloadedAsFarAsTheLinkIsFree) {
  // Each of 20 storages is 100 bytes and takes a second of the link or half of one of computing.
  StepProfile step = even_step(20, 1000, {100, 100, 0});
  for (Candidate& storage : step.candidates)
    storage.recompute = 0.5;
  StepProfile slow = step;
  slow.link = {30, 30, 0};

  const BudgetPlan plan = plan_step(step, 2500_B);
  const BudgetPlan more = plan_step(slow, 1500_B);

  EXPECT_EQ(plan.bytes(step, Action::kOffload), 500u);
  EXPECT_EQ(plan.timing.total(), plan.timing.compute);
  EXPECT_GT(more.bytes(slow, Action::kOffload), 0u);
  EXPECT_GT(more.bytes(slow, Action::kRecompute), more.bytes(slow, Action::kOffload));
  EXPECT_EQ(check_plan(slow, more, 1500_B), std::nullopt);
  EXPECT_EQ(more.actions[0], Action::kOffload);
  step.free_at_once = false;
  EXPECT_EQ(plan_step(step, 2500_B).bytes(step, Action::kOffload), 0u);
}

TEST(PlannerTest, TheCheapestPerByteIsRecomputedFirst) {
  StepProfile step = even_step(6, 1000, {1, 1, 0});
  for (std::size_t storage = 0; storage < 6; ++storage)
    step.candidates[storage].recompute = 1 + 0.1 * static_cast<double>((storage * 5) % 6);

  const BudgetPlan plan = plan_step(step, 1400_B);

  EXPECT_EQ(plan.timing.recompute, 1 + 1.1);
  EXPECT_EQ(plan.actions[0], Action::kRecompute);
  EXPECT_EQ(plan.actions[5], Action::kRecompute);
}

TEST(PlannerTest, TheSmallestPeakWithinATimeIsFoundAndAtMostThatSlow) {
  std::mt19937_64 random(kPlannerSeed);
  for (int trial = 0; trial < 8; ++trial) {
    const StepProfile step = random_step(random, 60);
    const double plain = plan_step(step, Bytes{~0ULL}).timing.total();
    Bytes before{~0ULL};
    for (const double slowdown : {1.0, 1.02, 1.1, 1.5, 100.0}) {
      const BudgetPlan plan = plan_within(step, slowdown, Bytes{~0ULL});
      ASSERT_LE(plan.timing.total(), slowdown * plain * (1 + 1e-9)) << "trial " << trial;
      ASSERT_LE(plan.peak, before) << "trial " << trial;
      before = plan.peak;
    }
    ASSERT_EQ(before, plan_step(step, 0_B).least) << "trial " << trial;
  }
}

TEST(PlanCurveTest, MoreMemoryIsNeverPlannedMuchSlower) {
  std::mt19937_64 random(kPlannerSeed);
  for (int trial = 0; trial < 30; ++trial) {
    const StepProfile step = random_step(random, 80);
    const std::vector<PlanPoint> curve = plan_curve(step, 9);
    ASSERT_EQ(curve.size(), 9u);
    for (std::size_t point = 1; point < curve.size(); ++point) {
      ASSERT_LT(curve[point - 1].budget, curve[point].budget);
      ASSERT_LE(curve[point].bound.seconds, curve[point - 1].bound.seconds * (1 + 1e-9));
      ASSERT_LE(curve[point].optimality(), 1 + 1e-9);
    }
    ASSERT_EQ(curve.back().timing.total(), curve.back().timing.compute);
    ASSERT_EQ(curve.back().offloaded + curve.back().recomputed, 0u);
  }
}

TEST(PlanCurveTest, BudgetAndBoundOfAPointIncludeReservedMemory) {
  std::mt19937_64 random(kPlannerSeed);
  StepProfile step = random_step(random, 80);
  step.link.out = 2000;  // slow enough to limit a step within the smallest budget
  const auto held = [](Bytes allocated) {
    return allocated + Bytes{allocated.count() / 10};
  };
  const std::vector<PlanPoint> allocated = plan_curve(step, 5);
  const std::vector<PlanPoint> all = plan_curve(step, 5, held);
  for (std::size_t point = 0; point < allocated.size(); ++point) {
    EXPECT_EQ(all[point].budget, held(allocated[point].budget));
    EXPECT_EQ(all[point].peak, allocated[point].peak);
    EXPECT_EQ(all[point].bound.seconds, lower_bound(step, all[point].budget).seconds);
  }
  EXPECT_LT(all.front().bound.seconds, allocated.front().bound.seconds);
}

}  // namespace
}  // namespace spillway
