// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/plan_request.h"

#include "allocator/plan/planner.h"
#include "tests/plan/profiles.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <random>
#include <utility>

namespace spillway {
namespace {

PlanRequest requested(const StepProfile& profile, Bytes budget, std::optional<BudgetPlan> before) {
  PlanRequest request;
  request.terms.budget = budget;
  request.allowed = budget;
  request.profile = std::make_shared<const StepProfile>(profile);
  request.before = std::move(before);
  request.run();
  return request;
}

TEST(PlanRequestTest, AnotherPlanReplacesTheLastOneOnlyIfItIsFasterByAPercent) {
  std::mt19937_64 random(11);
  int kept = 0;
  int replaced = 0;
  for (int round = 0; round < 200; ++round) {
    StepProfile profile = test_steps::random_step(random, 4 + random() % 12);
    for (const Bytes budget : test_steps::budgets_of(profile, 3)) {
      const BudgetPlan before = requested(profile, budget, std::nullopt).plan;
      if (before.peak > budget) continue;
      // Later steps are measured to take other times.
      const double spread = round % 2 == 0 ? 0.001 : 0.5;
      StepProfile now = profile;
      for (double& seconds : now.seconds)
        seconds *= 1 + spread * static_cast<double>(random() % 100) / 100;

      const BudgetPlan plan = requested(now, budget, before).plan;

      const BudgetPlan best = plan_step(now, budget);
      EXPECT_EQ(check_plan(now, plan, budget), std::nullopt);
      EXPECT_LE(plan.timing.total(), best.timing.total() * 1.01);
      const bool same = plan.actions == before.actions && plan.fetch == before.fetch;
      (same ? kept : replaced) += best.actions == before.actions ? 0 : 1;
      EXPECT_TRUE(same || plan.actions == best.actions);
    }
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(replaced, 0);
}

TEST(PlanRequestTest, ALastPlanThatNoLongerFitsIsReplaced) {
  std::mt19937_64 random(12);
  for (int round = 0; round < 50; ++round) {
    const StepProfile profile = test_steps::random_step(random, 10);
    const auto budgets = test_steps::budgets_of(profile, 4);
    const BudgetPlan before = requested(profile, budgets.back(), std::nullopt).plan;

    const BudgetPlan plan = requested(profile, budgets.front(), before).plan;

    EXPECT_EQ(plan.actions, plan_step(profile, budgets.front()).actions);
  }
}

}  // namespace
}  // namespace spillway
