// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/active_costs.h"
#include "allocator/plan/bound.h"
#include "allocator/plan/planner.h"
#include "allocator/plan/simulator.h"
#include "tests/plan/profiles.h"
#include "tests/plan/training_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace spillway {
namespace {

using namespace literals;
using test_steps::budgets_of;
using test_steps::random_actions;
using test_steps::TrainingStep;

constexpr std::uint64_t kWindowsSeed = 23;

/// A step of `events` seconds with these candidates, none of which can be recomputed.
StepProfile step_with(std::size_t events, std::vector<std::vector<Window>> candidates) {
  RecordedStep recorded;
  recorded.peaks.assign(events, 0);
  recorded.storages = candidates.size();
  recorded.besides.resize(candidates.size());
  StepProfile step(std::move(recorded));
  for (std::size_t each = 0; each < candidates.size(); ++each)
    step.candidates[each] = {candidates[each].front().bytes, {}, std::move(candidates[each])};
  step.seconds.assign(events, 1);
  step.link = {50, 50, 0};
  return step;
}

BudgetPlan all_offloaded(const StepProfile& step, Bytes budget) {
  return plan_with(step, std::vector(step.candidates.size(), Action::kOffload), budget);
}

TEST(WindowsTest, PlansOfAllClassesAreSoundAndNeverBeatTheBound) {
  std::mt19937_64 random(kWindowsSeed);
  for (int trial = 0; trial < 60; ++trial) {
    const StepProfile step = TrainingStep(random, 1 + random() % 20, random() % 2 == 0).profile();
    for (const Bytes budget : budgets_of(step, 8)) {
      const BudgetPlan plan = plan_step(step, budget);
      ASSERT_EQ(check_plan(step, plan, budget), std::nullopt) << "trial " << trial;
      ASSERT_LE(plan.peak, budget) << "trial " << trial;
      const double bound = lower_bound(step, budget).seconds;
      ASSERT_GE(plan.timing.total() * (1 + 1e-9), bound) << "trial " << trial;
      ASSERT_GE(bound * (1 + 1e-9), plan.timing.compute) << "trial " << trial;
    }
  }
}

TEST(WindowsTest, RandomActionsNeverBeatTheBound) {
  std::mt19937_64 random(kWindowsSeed);
  for (int trial = 0; trial < 300; ++trial) {
    const StepProfile step = TrainingStep(random, 1 + random() % 12).profile();
    const std::vector<Action> actions = random_actions(random, step);
    const Bytes needed = plan_with(step, actions, Bytes{}).peak;
    const BudgetPlan plan = plan_with(step, actions, needed);
    ASSERT_EQ(check_plan(step, plan, needed), std::nullopt) << "trial " << trial;
    ASSERT_GE(plan.timing.total() * (1 + 1e-9), lower_bound(step, needed).seconds)
        << "trial " << trial;
  }
}

TEST(WindowsTest, PlansOfSmallStepsAreNearlyAsFastAsTheBestOfAllChoices) {
  std::mt19937_64 random(kWindowsSeed);
  double sum = 0;
  int count = 0;
  for (int trial = 0; trial < 20; ++trial) {
    const StepProfile step = TrainingStep(random, 2).profile();
    for (const Bytes budget : budgets_of(step, 4)) {
      const double ratio =
          plan_step(step, budget).timing.total() / test_steps::best_of_all(step, budget);
      ASSERT_GE(ratio, 1 - 1e-9);
      sum += ratio;
      ++count;
    }
  }
  EXPECT_LE(sum / count, 1.1);
}

TEST(ActiveCostsTest, TheCheapestActiveBytesAreChosenFirst) {
  std::mt19937_64 random(kWindowsSeed);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<ActiveCosts::Item> items(1 + random() % 20);
    for (ActiveCosts::Item& item : items)
      item = {static_cast<double>(random() % 50), static_cast<double>(random() % 50)};
    ActiveCosts costs(items);
    std::vector<ActiveCosts::Item> active;
    for (std::size_t each = 0; each < items.size(); ++each) {
      costs.activate(each);
      if (random() % 3 == 0) {
        costs.deactivate(each);
      } else if (items[each].bytes > 0) {
        active.push_back(items[each]);
      }
    }
    std::sort(active.begin(), active.end(), [](const auto& left, const auto& right) {
      return left.seconds * right.bytes < right.seconds * left.bytes;
    });
    for (double bytes = 0; bytes <= costs.bytes() + 10; bytes += 7) {
      double left = bytes;
      double seconds = 0;
      for (const ActiveCosts::Item& item : active) {
        seconds += item.seconds * std::min(1.0, left / item.bytes);
        left = std::max(0.0, left - item.bytes);
      }
      ASSERT_NEAR(costs.seconds(bytes), seconds, 1e-9) << "trial " << trial;
    }
  }
}

TEST(WindowsTest, WithAllMemoryNothingMoves) {
  std::mt19937_64 random(kWindowsSeed);
  const StepProfile step = TrainingStep(random, 10).profile();

  const BudgetPlan plan = plan_step(step, Bytes{test_steps::peak_of(step, Action::kKeep)});

  EXPECT_EQ(plan.bytes(step, Action::kOffload) + plan.bytes(step, Action::kRecompute), 0U);
  EXPECT_EQ(plan.timing.total(), plan.timing.compute);
}

TEST(WindowsTest, AWindowWithACurrentHostCopyFreesItsMemoryAtOnce) {
  // 100 bytes of memory hold one of two candidates. A copy takes two seconds.
  const auto step = [](std::uint64_t out) {
    StepProfile made = step_with(8, {{{1, 6, 100, 0, out, 100}}});
    made.memory.peaks[2] = 100;
    return made;
  };

  EXPECT_EQ(simulate(step(0), all_offloaded(step(0), 100_B), 100_B).stall_out, 0);
  // It is copied out from the step's begin until second 2.
  EXPECT_EQ(simulate(step(100), all_offloaded(step(100), 100_B), 100_B).stall_out, 0);
  StepProfile late = step(100);
  late.candidates[0].windows[0].ready = 1;
  // From second 1 until 3, where event 2 would begin at 2.
  EXPECT_EQ(simulate(late, all_offloaded(late, 100_B), 100_B).stall_out, 1);
  late.candidates[0].windows[0].ready_after = 0.5;
  EXPECT_EQ(simulate(late, all_offloaded(late, 100_B), 100_B).stall_out, 1.5);
  // Without bytes to copy there is no copy, whatever a copy costs.
  StepProfile clean = step(0);
  clean.candidates[0].windows[0].in = 0;
  clean.link.per_copy = 100;
  EXPECT_EQ(simulate(clean, all_offloaded(clean, 100_B), 100_B).total(), 8);
}

TEST(WindowsTest, ACopyThatBeginsWithinAnEventWaitsForTheEventsRecomputation) {
  StepProfile step = step_with(8, {{{2, 6, 100, 1, 100, 100}}, {{0, 1, 100, 0, 0, 0}}});
  step.memory.peaks[2] = 100;
  step.candidates[0].windows[0].ready_after = 0.5;
  const auto plan = [&] {
    return plan_with(step, {Action::kOffload, Action::kRecompute}, 100_B);
  };

  // The copy takes two seconds from 1.5 on. Event 2 would begin at 2.
  step.candidates[1].recompute = 0;
  EXPECT_EQ(plan().timing.stall_out, 1.5);
  // All of this a second later.
  step.candidates[1].recompute = 1;
  EXPECT_EQ(plan().timing.stall_out, 1.5);
}

TEST(WindowsTest, AWindowWithoutLaterUseIsNotCopiedIn) {
  const StepProfile step = step_with(8, {{{4, 8, 100, 4, 100, 0}}});

  const BudgetPlan plan = all_offloaded(step, 0_B);

  // Only the copy out is waited for.
  EXPECT_EQ(plan.timing.total(), 8 + 2);
  EXPECT_EQ(lower_bound(step, 0_B).seconds, 8 + 2);
}

TEST(WindowsTest, EachWindowOfACandidateHasItsOwnCopies) {
  // Away from 1 to 3 and from 4 to 6; each copy takes two seconds. The second time, its contents
  // have not changed.
  StepProfile step = step_with(8, {{{1, 3, 100, 0, 100, 100}, {4, 6, 100, 4, 0, 100}}});

  const BudgetPlan plan = all_offloaded(step, 0_B);

  // Both copies in begin at the uses: nothing else is used before.
  EXPECT_EQ(plan.timing.stall_in, 2 + 2);
  // A change in between is copied out from 4 on, which ends when the copy in may begin.
  step.candidates[0].windows[1].out = 100;
  step.link.out = 10;
  EXPECT_EQ(all_offloaded(step, 100_B).timing.stall_in, 10 - 3 + 2 + 10 - 2 + 2);
}

TEST(WindowsTest, ARecordedStorageHasTheCopiesOfItsFirstAbsence) {
  StepCurve curve;
  curve.allocated.assign(10, 500);
  curve.absences = {{0, 1, 3, 128}, {0, 4, 6, 128}, {1, 8, 10, 128}};
  StepProfile step{RecordedStep(curve, 2)};
  step.set_contents(0, 100);

  std::vector<std::uint64_t> out;
  std::vector<std::uint64_t> in;
  for (const Candidate& candidate : step.candidates) {
    for (const Window& window : candidate.windows) {
      out.push_back(window.out);
      in.push_back(window.in);
    }
  }
  EXPECT_EQ(out, (std::vector<std::uint64_t>{100, 0, 128}));
  EXPECT_EQ(in, (std::vector<std::uint64_t>{100, 0, 0}));
}

TEST(WindowsTest, WindowsOfAStorageAreDecidedIndependently) {
  // A parameter, used at 0, 4 and 9. Only event 6 needs its memory.
  StepProfile step = step_with(10, {{{1, 4, 100, 0, 0, 100}}, {{5, 9, 100, 0, 0, 100}}});
  step.memory.peaks = {100, 0, 0, 0, 100, 0, 100, 0, 0, 100};

  const BudgetPlan plan = plan_step(step, 100_B);

  EXPECT_EQ(plan.actions, (std::vector{Action::kKeep, Action::kOffload}));
}

TEST(WindowsTest, WhatBeginsAwayIsFetchedAheadOfItsUse) {
  // Two optimizer states, used at 6 and 7. A copy takes two seconds; there is room for both.
  StepProfile step =
      step_with(8, {{{0, 6, 100, 0, 0, 100}}, {{0, 7, 100, 0, 0, 100}}, {{1, 3, 1, 0, 1, 1}}});

  const BudgetPlan plan = all_offloaded(step, 200_B);

  // The first use of the step is at event 3.
  EXPECT_EQ(plan.fetch[0], 3u);
  EXPECT_EQ(plan.fetch[1], 3u);
  EXPECT_EQ(check_plan(step, plan, 200_B), std::nullopt);
}

TEST(WindowsTest, TheCandidateWithFewerCopiesIsOffloadedFirst) {
  // At event 5 one of two has to be away: the one that was written has to be copied out, too.
  StepProfile step = step_with(10, {{{4, 9, 100, 4, 100, 100}}, {{4, 8, 100, 0, 0, 100}}});
  for (std::size_t other = 0; other < 2; ++other) {
    const BudgetPlan plan = plan_step(step, 100_B);
    EXPECT_EQ(plan.actions[1 - other], Action::kOffload);
    EXPECT_EQ(plan.actions[other], Action::kKeep);
    std::swap(step.candidates[0], step.candidates[1]);
  }
}

}  // namespace
}  // namespace spillway
