// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/budget_chooser.h"
#include "tests/plan/offered_steps.h"

#include <gtest/gtest.h>

#include <optional>

namespace spillway {
namespace {

using namespace literals;

TEST(BudgetShortageTest, ABudgetBelowWhatIsLeftIsMissedByTheSmallestThatWouldDo) {
  BudgetChooser chooser(999_B);
  std::optional<BudgetShortage> missed;

  step(chooser, {100, 100}, 1000, &missed);

  EXPECT_EQ(missed->least, 1000_B);
}

TEST(BudgetShortageTest, WhatTheOptimizerNeedsCounts) {
  BudgetChooser chooser(1500_B);
  std::optional<BudgetShortage> missed;

  step(chooser, {100, 100}, 1000, &missed, {1501, 1000});

  EXPECT_EQ(missed->least, 1501_B);
}

TEST(BudgetShortageTest, TheSmallestIsALowerBoundUntilAnOptimizersStepIsKnown) {
  BudgetChooser chooser(999_B);
  std::optional<BudgetShortage> missed;
  step(chooser, {100, 100}, 1000, &missed);
  EXPECT_TRUE(missed->lower_bound);
  step(chooser, {100, 100}, 1000, &missed, {1700, 1000});
  EXPECT_FALSE(missed->lower_bound);

  step(chooser, {100, 100}, 1000, &missed);

  EXPECT_FALSE(missed->lower_bound);
  EXPECT_EQ(missed->least, 1700_B);
  step(chooser, {100, 100}, 1100, &missed);
  EXPECT_TRUE(missed->lower_bound);  // what its optimizer needs is not known
}

TEST(BudgetShortageTest, TheNextStepBeginsWithWhatTheOptimizerHasMade) {
  BudgetChooser chooser(999_B);
  std::optional<BudgetShortage> missed;

  // The backward pass lets go of 50 of 900, then 300 are made, with 200 for a while.
  step(chooser, {100, 100}, 900, &missed, {850, 1350, 1150});

  EXPECT_EQ(missed->least, 1350_B);  // 900 + 300 are less
  EXPECT_FALSE(missed->lower_bound);
  BudgetChooser another(999_B);
  step(another, {100, 100}, 900, &missed, {1050, 1250});
  EXPECT_EQ(missed->least, 1250_B);  // 900 + 350
  BudgetChooser third(999_B);
  step(third, {100, 100}, 900, &missed, {700, 900, 1000});
  EXPECT_EQ(missed->least, 1200_B);  // 900 + 300, of which the step's own end has less
}

TEST(BudgetShortageTest, WhatABackwardPassHasMadeInTheTailTheNextStepDoesNotBeginWith) {
  StepCurve curve = nested({100, 100}, 900);
  curve.tail = curve.live.size();
  curve.live.push_back(1000);  // a gradient
  curve.passed = curve.live.size();
  curve.live.push_back(1060);
  BudgetChooser chooser(899_B);
  for (int storage = 0; storage < 2; ++storage)
    chooser.choose(100_B, 900_B);

  const auto missed = chooser.end_step(curve, true);

  EXPECT_EQ(missed->least, 1060_B);
}

TEST(BudgetShortageTest, TheSmallestThatIsNamedBehindAnOptimizersStepIsMet) {
  BudgetChooser chooser(1_B);
  std::optional<BudgetShortage> missed;
  step(chooser, {100, 100}, 900, &missed, {700, 900, 1000});
  BudgetChooser again(missed->least);

  step(again, {100, 100}, 900, &missed, {700, 900, 1000});
  EXPECT_FALSE(missed);
  for (int steps = 0; steps < 3; ++steps) {
    step(again, {100, 100}, 1200, &missed, {1000, 1100, 1000});
    EXPECT_FALSE(missed);
  }
}

TEST(BudgetShortageTest, TheNextStepMayNeedALittleMoreThanTheOneBehindWhichTheSmallestIsNamed) {
  BudgetChooser chooser(1_B);
  std::optional<BudgetShortage> missed;
  step(chooser, {100, 100}, 900'000, &missed, {700'000, 900'000, 1'000'000});
  BudgetChooser again(missed->least);

  step(again, {100, 100}, 1'200'200, &missed, {1'000'000, 1'100'000, 1'000'000});

  EXPECT_FALSE(missed);
}

}  // namespace
}  // namespace spillway
