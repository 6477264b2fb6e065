// SPDX-License-Identifier: Apache-2.0
// What a device holds beyond its budget, as a chooser plans for it.
#include "tests/plan/offered_steps.h"

#include <gtest/gtest.h>

#include <vector>

namespace spillway {
namespace {

using namespace literals;

/// A step of three storages that holds `most` at its peak.
std::vector<bool> held_step(BudgetChooser& chooser, Bytes most) {
  std::vector<bool> moves;
  for (int storage = 0; storage < 3; ++storage)
    moves.push_back(chooser.choose(100_B, 1000_B) == Action::kMove);
  chooser.held(most);
  chooser.end_step(nested({0, 0, 0}, 1000));
  return moves;
}

/// Recorded and planned, then as many steps that hold too much as it takes to plan for less.
void plan_and_hold_more(BudgetChooser& chooser) {
  step(chooser, {100, 100, 100}, 1000);
  step(chooser, {100, 100, 100}, 1000);
  for (int steps = 0; steps < 3; ++steps)
    held_step(chooser, 1600_B);
}

TEST(HeldMarginTest, WhatAPlannedStepHeldBeyondTheBudgetIsPlannedForLess) {
  BudgetChooser chooser(1250_B);
  step(chooser, {100, 100, 100}, 1000);
  chooser.time(even_times(7));
  ASSERT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, false, false}));
  held_step(chooser, 1310_B);  // once may be on the way to where its memory will be
  EXPECT_EQ(held_step(chooser, 1240_B), (std::vector{true, false, false}));
  for (int steps = 0; steps < 3; ++steps)
    EXPECT_EQ(held_step(chooser, 1310_B), (std::vector{true, false, false}));

  EXPECT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, true, false}));
  // What is said of it is said for the budget that was asked for.
  EXPECT_EQ(chooser.planned_last()->budget, 1250_B);
  EXPECT_LE(chooser.planned_last()->plan.peak, 1190_B);
}

TEST(HeldMarginTest, WhereNoPlanNeedsThatMuchLessEverythingIsAwayIfThatHoldsLess) {
  BudgetChooser chooser(1250_B);
  plan_and_hold_more(chooser);
  const std::uint64_t records = chooser.records();
  for (int steps = 0; steps < 16; ++steps)
    EXPECT_EQ(held_step(chooser, 1500_B), (std::vector{true, true, true})) << steps;
  EXPECT_EQ(chooser.records(), records);
}

TEST(HeldMarginTest, WhereThatHoldsAsMuchThePlanIsAsWithoutAMargin) {
  BudgetChooser chooser(1250_B);
  plan_and_hold_more(chooser);
  for (int steps = 0; steps < 9; ++steps)
    EXPECT_EQ(held_step(chooser, 1600_B), (std::vector{true, true, true})) << steps;
  for (int steps = 0; steps < 8; ++steps)
    EXPECT_EQ(held_step(chooser, 1600_B), (std::vector{true, false, false})) << steps;
}

TEST(HeldMarginTest, WhatAStepWithoutAPlanHeldSaysNothing) {
  BudgetChooser chooser(1250_B);
  for (int storage = 0; storage < 3; ++storage)
    chooser.choose(100_B, 1000_B);
  chooser.held(1600_B);
  StepCurve curve = nested({100, 100, 100}, 1000);
  chooser.end_step(curve);

  EXPECT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, false, false}));
}

}  // namespace
}  // namespace spillway
