// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/planner.h"

#include "allocator/plan/bound.h"
#include "allocator/plan/plan_curve.h"
#include "allocator/plan/simulator.h"
#include "tests/plan/profiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace spillway {
namespace {

using namespace literals;
using testing::even_step;
using testing::random_step;
using testing::random_step_with_unwanted;

constexpr std::uint64_t kSeed = 11;

std::uint64_t peak_of(const StepProfile& step, Action everything) {
  const std::vector<Action> actions(step.storages.size(), everything);
  const auto live = live_bytes(step, actions);
  return *std::max_element(live.begin(), live.end());
}

std::vector<Bytes> budgets_of(const StepProfile& step, std::uint64_t count) {
  const std::uint64_t most = peak_of(step, Action::kKeep);
  const std::uint64_t least = plan_step(step, 0_B).least.count();
  std::vector<Bytes> budgets;
  for (std::uint64_t each = 0; each <= count; ++each)
    budgets.emplace_back(least + (most - least) * each / count);
  return budgets;
}

TEST(PlannerTest, PlansOfRandomStepsAreSoundAndNeverBeatTheBound) {
  std::mt19937_64 random(kSeed);
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

TEST(PlannerTest, WhatIsNeverWantedAgainCostsNoBoundItsWayBack) {
  std::mt19937_64 random(kSeed);
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
  std::mt19937_64 random(kSeed);
  const StepProfile step = random_step(random, 200);
  const Bytes budget = budgets_of(step, 2)[1];

  const BudgetPlan first = plan_step(step, budget);
  const BudgetPlan second = plan_step(step, budget);

  EXPECT_EQ(first.actions, second.actions);
  EXPECT_EQ(first.fetch, second.fetch);
}

/// The least time of any choice of actions, each brought back when the planner would.
double best_of_all(const StepProfile& step, Bytes budget) {
  const std::size_t storages = step.storages.size();
  double best = 1e300;
  std::vector<Action> actions(storages, Action::kKeep);
  const std::function<void(std::size_t)> choose = [&](std::size_t storage) {
    if (storage < storages) {
      for (const Action action : {Action::kKeep, Action::kMove, Action::kRebuild}) {
        if (action == Action::kRebuild && !step.storages[storage].rebuild) continue;
        actions[storage] = action;
        choose(storage + 1);
      }
      return;
    }
    const BudgetPlan plan = plan_with(step, actions, budget);
    if (plan.peak <= budget) best = std::min(best, plan.timing.total());
  };
  choose(0);
  return best;
}

TEST(PlannerTest, PlansOfSmallStepsAreNearlyAsFastAsTheBestOfAllChoices) {
  std::mt19937_64 random(kSeed);
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

TEST(PlannerTest, WhatIsDearMovesOrIsComputedAgainNearlyAsIsBest) {
  std::mt19937_64 random(kSeed);
  double sum = 0;
  int count = 0;
  for (int trial = 0; trial < 60; ++trial) {
    StepProfile step = random_step(random, 7);
    for (StepProfile::Storage& storage : step.storages)
      storage.rebuild =
          step.link.out_seconds(storage.bytes) * (0.1 + 0.01 * static_cast<double>(random() % 80));
    for (const Bytes budget : budgets_of(step, 4)) {
      sum += plan_step(step, budget).timing.total() / best_of_all(step, budget);
      ++count;
    }
  }
  EXPECT_LE(sum / count, 1.01);
}

TEST(PlannerTest, WhatComesBackBeginsWithAUse) {
  std::mt19937_64 random(kSeed);
  int early = 0;
  for (int trial = 0; trial < 100; ++trial) {
    const StepProfile step = random_step_with_unwanted(random, 1 + random() % 30);
    std::set<std::size_t> uses;
    for (const StepProfile::Storage& storage : step.storages)
      uses.insert(storage.wanted);
    for (const Bytes budget : budgets_of(step, 8)) {
      const BudgetPlan plan = plan_step(step, budget);
      for (std::size_t storage = 0; storage < plan.actions.size(); ++storage) {
        const std::size_t wanted = step.storages[storage].wanted;
        if (plan.actions[storage] != Action::kMove || wanted == step.places()) continue;
        ASSERT_TRUE(uses.count(plan.fetch[storage])) << "trial " << trial;
        if (plan.fetch[storage] < wanted) ++early;
      }
    }
  }
  EXPECT_GT(early, 0);
}

TEST(PlannerTest, WhereTheLinkKeepsUpMovingIsFreeAndNothingIsComputedAgain) {
  StepProfile step = even_step(20, 1000, {1000, 1000, 0});
  for (std::size_t storage = 0; storage < step.storages.size(); storage += 2)
    step.storages[storage].rebuild = 0.5;

  const BudgetPlan plan = plan_step(step, 2500_B);

  EXPECT_EQ(plan.bytes(step, Action::kRebuild), 0u);
  EXPECT_EQ(plan.bytes(step, Action::kMove), 500u);
  EXPECT_EQ(plan.timing.total(), plan.timing.compute);
}

TEST(PlannerTest, WhereTheLinkIsSlowWhatIsCheapIsComputedAgain) {
  StepProfile step = even_step(20, 1000, {1, 1, 0});
  for (std::size_t storage = 0; storage < step.storages.size(); storage += 2)
    step.storages[storage].rebuild = 0.5;

  const BudgetPlan plan = plan_step(step, 2500_B);

  EXPECT_EQ(plan.bytes(step, Action::kMove), 0u);
  EXPECT_EQ(plan.bytes(step, Action::kRebuild), 500u);
  EXPECT_EQ(plan.timing.rebuild, 2.5);
}

TEST(PlannerTest, WhatIsDearToComputeAgainMovesAsFarAsTheLinkIsFree) {
  // Each of 20 storages is 100 bytes and takes a second of the link or half of one of computing.
  StepProfile step = even_step(20, 1000, {100, 100, 0});
  for (StepProfile::Storage& storage : step.storages)
    storage.rebuild = 0.5;
  StepProfile slow = step;
  slow.link = {30, 30, 0};

  const BudgetPlan plan = plan_step(step, 2500_B);
  const BudgetPlan more = plan_step(slow, 1500_B);

  EXPECT_EQ(plan.bytes(step, Action::kMove), 500u);
  EXPECT_EQ(plan.timing.total(), plan.timing.compute);
  EXPECT_GT(more.bytes(slow, Action::kMove), 0u);
  EXPECT_GT(more.bytes(slow, Action::kRebuild), more.bytes(slow, Action::kMove));
  EXPECT_EQ(check_plan(slow, more, 1500_B), std::nullopt);
  EXPECT_EQ(more.actions[0], Action::kMove);
  step.free_at_once = false;
  EXPECT_EQ(plan_step(step, 2500_B).bytes(step, Action::kMove), 0u);
}

TEST(PlannerTest, OfWhatIsComputedAgainTheCheapestPerByteGoesFirst) {
  StepProfile step = even_step(6, 1000, {1, 1, 0});
  for (std::size_t storage = 0; storage < 6; ++storage)
    step.storages[storage].rebuild = 1 + 0.1 * static_cast<double>((storage * 5) % 6);

  const BudgetPlan plan = plan_step(step, 1400_B);

  EXPECT_EQ(plan.timing.rebuild, 1 + 1.1);
  EXPECT_EQ(plan.actions[0], Action::kRebuild);
  EXPECT_EQ(plan.actions[5], Action::kRebuild);
}

TEST(PlannerTest, TheSmallestPeakWithinATimeIsFoundAndAtMostThatSlow) {
  std::mt19937_64 random(kSeed);
  for (int trial = 0; trial < 20; ++trial) {
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

TEST(SimulatorTest, AnEvenStepTakesWhatAPencilSays) {
  // Three storages; everything moves at 50 bytes a second, two seconds each way.
  const StepProfile step = even_step(3, 1000, {50, 50, 0});
  BudgetPlan plan;
  plan.actions.assign(3, Action::kMove);
  plan.fetch = {4, 4, 4};

  // Saved at 0, 1 and 2 seconds: their copies end at 2, 4 and 6. With room for nothing the place
  // at which one is let go waits: until 2, 4 and 6, with a second of computing after each, so that
  // the turn is at 7. Back they come, wanted 2, 1, 0: nothing wants the first before place 4.
  const StepTiming tight = simulate(step, plan, 1000_B);
  EXPECT_EQ(tight.compute, 7);
  EXPECT_EQ(tight.stall_out, 1 + 1 + 1);
  // Copies in begin at 7 and end at 9 (the order of the list), 11, 13: storage 0 is the first.
  EXPECT_GT(tight.stall_in, 0);
  EXPECT_EQ(tight.total(), 7 + tight.stall_out + tight.stall_in);

  const StepTiming wide = simulate(step, plan, 1300_B);
  EXPECT_EQ(wide.stall_out, 0);
}

TEST(BoundTest, AnEvenStepIsBoundByTheLinkAsAPencilSays) {
  // Ten storages of 100 bytes; 500 bytes must be away at the turn, five seconds each at 20 a
  // second.
  const StepProfile step = even_step(10, 1000, {20, 100, 0});

  const StepBound bound = lower_bound(step, 1500_B);

  // Out: 25 seconds from the first save on, and the second that the fullest place takes.
  EXPECT_EQ(bound.limit, StepBound::Limit::kLinkOut);
  EXPECT_DOUBLE_EQ(bound.forward, 25 + 1);
  EXPECT_DOUBLE_EQ(bound.backward, 10);
  EXPECT_DOUBLE_EQ(lower_bound(step, 2000_B).seconds, 21);
}

TEST(BoundTest, TheWayBackIsBoundAsTheWayOutIs) {
  const StepBound bound = lower_bound(even_step(10, 1000, {100, 20, 0}), 1500_B);

  // In: 400 bytes are away when the backward pass begins, and a second follows the last use.
  EXPECT_EQ(bound.limit, StepBound::Limit::kLinkIn);
  EXPECT_DOUBLE_EQ(bound.forward, 11);
  EXPECT_DOUBLE_EQ(bound.backward, 20 + 1);
}

/// What may be wrong with a plan, each in its own way.
const std::vector<std::pair<std::string, std::function<void(StepProfile&, BudgetPlan&, Bytes&)>>>
    kWrongs = {
        {"an action too few",
         [](auto&, auto& plan, auto&) {
           plan.actions.pop_back();
         }},
        {"an action too many",
         [](auto&, auto& plan, auto&) {
           plan.actions.push_back(Action::kKeep);
         }},
        {"a place too few",
         [](auto&, auto& plan, auto&) {
           plan.fetch.pop_back();
         }},
        {"a place too many",
         [](auto&, auto& plan, auto&) {
           plan.fetch.push_back(0);
         }},
        {"no actions",
         [](auto&, auto& plan, auto&) {
           plan.actions.clear();
         }},
        {"no places",
         [](auto&, auto& plan, auto&) {
           plan.fetch.clear();
         }},
        {"everything kept",
         [](auto&, auto& plan, auto&) {
           plan.actions.assign(plan.actions.size(), Action::kKeep);
         }},
        {"one that moves kept",
         [](auto&, auto& plan, auto&) {
           *std::find(plan.actions.begin(), plan.actions.end(), Action::kMove) = Action::kKeep;
         }},
        {"one that is rebuilt kept",
         [](auto&, auto& plan, auto&) {
           *std::find(plan.actions.begin(), plan.actions.end(), Action::kRebuild) = Action::kKeep;
         }},
        {"one that cannot be is rebuilt",
         [](auto&, auto& plan, auto&) {
           *std::find(plan.actions.begin(), plan.actions.end(), Action::kMove) = Action::kRebuild;
         }},
        {"one that was rebuilt moves, unseen by its time",
         [](auto&, auto& plan, auto&) {
           *std::find(plan.actions.begin(), plan.actions.end(), Action::kRebuild) = Action::kMove;
         }},
        {"one kept moves, unseen by its peak and time",
         [](auto& step, auto& plan, auto&) {
           for (std::size_t each = 0; each < plan.actions.size(); ++each) {
             if (plan.actions[each] != Action::kKeep || step.storages[each].rebuild) continue;
             plan.actions[each] = Action::kMove;
             plan.fetch[each] = step.storages[each].wanted;
             return;
           }
         }},
        {"one comes back after it is wanted",
         [](auto& step, auto& plan, auto&) {
           const auto moves = std::find(plan.actions.begin(), plan.actions.end(), Action::kMove);
           const auto each = static_cast<std::size_t>(moves - plan.actions.begin());
           plan.fetch[each] = step.storages[each].wanted + 1;
         }},
        {"one comes back in the forward pass",
         [](auto& step, auto& plan, auto&) {
           const auto moves = std::find(plan.actions.begin(), plan.actions.end(), Action::kMove);
           plan.fetch[static_cast<std::size_t>(moves - plan.actions.begin())] = step.turn - 1;
         }},
        {"all come back at once",
         [](auto& step, auto& plan, auto&) {
           for (std::size_t each = 0; each < plan.fetch.size(); ++each)
             plan.fetch[each] = std::min(step.turn, step.storages[each].wanted);
         }},
        {"a smaller peak than it has",
         [](auto&, auto& plan, auto&) {
           plan.peak = Bytes{plan.peak.count() - 1};
         }},
        {"a larger peak than it has",
         [](auto&, auto& plan, auto&) {
           plan.peak = Bytes{plan.peak.count() + 1};
         }},
        {"a budget below its peak",
         [](auto&, auto& plan, auto& budget) {
           budget = Bytes{plan.peak.count() - 1};
         }},
        {"less time than it takes",
         [](auto&, auto& plan, auto&) {
           plan.timing.compute *= 0.999;
         }},
        {"no stalls",
         [](auto&, auto& plan, auto&) {
           plan.timing.stall_out = -1e-6;
         }},
        {"a step with more live bytes",
         [](auto& step, auto&, auto&) {
           for (std::uint64_t& peak : step.memory.peaks)
             peak += 1;
         }},
        {"a slower link",
         [](auto& step, auto&, auto&) {
           step.link.out /= 100;
         }},
        {"a step of other storages",
         [](auto& step, auto&, auto&) {
           step.storages.pop_back();
         }},
};

TEST(PlanCheckTest, EveryWrongPlanIsNamed) {
  std::mt19937_64 random(kSeed);
  StepProfile step = random_step(random, 60);
  step.link = {2000, 2000, 1e-3};  // both are in use
  const Bytes budget = budgets_of(step, 4)[1];
  const BudgetPlan plan = plan_step(step, budget);
  ASSERT_EQ(check_plan(step, plan, budget), std::nullopt);
  for (const Action action : {Action::kKeep, Action::kMove, Action::kRebuild})
    ASSERT_GT(plan.bytes(step, action), 0u);
  ASSERT_GE(kWrongs.size(), 20u);

  for (const auto& [name, spoil] : kWrongs) {
    StepProfile spoiled_step = step;
    BudgetPlan spoiled = plan;
    Bytes spoiled_budget = budget;
    spoil(spoiled_step, spoiled, spoiled_budget);
    EXPECT_NE(check_plan(spoiled_step, spoiled, spoiled_budget), std::nullopt) << name;
  }
}

TEST(PlanCurveTest, MoreMemoryIsNeverPlannedSlowerThanALittle) {
  std::mt19937_64 random(kSeed);
  for (int trial = 0; trial < 30; ++trial) {
    const StepProfile step = random_step(random, 80);
    const std::vector<PlanPoint> curve = plan_curve(step, 9);
    ASSERT_EQ(curve.size(), 9u);
    for (std::size_t point = 1; point < curve.size(); ++point) {
      ASSERT_LT(curve[point - 1].budget, curve[point].budget);
      ASSERT_LE(curve[point].bound.seconds, curve[point - 1].bound.seconds * (1 + 1e-9));
      ASSERT_LE(curve[point].of_limit(), 1 + 1e-9);
    }
    ASSERT_EQ(curve.back().timing.total(), curve.back().timing.compute);
    ASSERT_EQ(curve.back().moved + curve.back().rebuilt, 0u);
  }
}

}  // namespace
}  // namespace spillway
