// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/budget_chooser.h"
#include "tests/plan/offered_steps.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace spillway {
namespace {

using namespace literals;

TEST(BudgetShortageTest, AShortageNamesTheSmallestBudgetThatFits) {
  BudgetChooser chooser(999_B);
  std::optional<BudgetShortage> missed;

  step(chooser, {100, 100}, 1000, &missed);

  EXPECT_EQ(missed->least, 1000_B);
}

TEST(BudgetShortageTest, TheOptimizerPhaseCounts) {
  BudgetChooser chooser(1500_B);
  std::optional<BudgetShortage> missed;

  step(chooser, {100, 100}, 1000, &missed, {1501, 1000});

  EXPECT_EQ(missed->least, 1501_B);
}

TEST(BudgetShortageTest, TheSmallestBudgetIsALowerBoundUntilAnOptimizerStepIsKnown) {
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

/// A step of two storages of 100 bytes that can be recomputed; what it was to do with them.
std::vector<Action> recomputable(BudgetChooser& chooser,
                                 Bytes reserved,
                                 std::optional<BudgetShortage>* missed = nullptr) {
  std::vector<Action> actions;
  for (int storage = 0; storage < 2; ++storage)
    actions.push_back(chooser.choose(100_B, 1000_B, true));
  chooser.set_memory({reserved, 0_B});
  const auto missing = chooser.end_step(nested({100, 100}, 1000), true);
  if (missed != nullptr) *missed = missing;
  return actions;
}

TEST(BudgetShortageTest, APredictionAloneIsNoShortage) {
  BudgetChooser chooser(1000_B);
  chooser.set_prediction(PredictedReserved({600_B, 900_B, 100_B}));
  std::optional<BudgetShortage> missed;

  for (int steps = 0; steps < 5; ++steps) {
    const auto offloads = step(chooser, {100, 100}, 1000, &missed, {1000});
    EXPECT_FALSE(missed);
    EXPECT_EQ(offloads, std::vector(2, true));  // no plan fits what is foreseen
  }
}

TEST(BudgetShortageTest, ReservedBytesAboveTheBudgetAreAShortageEvenIfAllocatedBytesFit) {
  for (const Bytes fewest : {0_B, 1051_B}) {
    BudgetChooser chooser(1050_B);
    std::optional<BudgetShortage> missed;
    chooser.choose(100_B, 1000_B);
    chooser.set_memory({1200_B, fewest});
    missed = chooser.end_step(nested({100}, 1000), true);

    EXPECT_EQ(missed.has_value(), fewest.zero());  // small budgets count what is allocated
    if (missed) {
      EXPECT_GE(missed->least, 1200_B);
      EXPECT_EQ(missed->begin, 1000_B);
    }
  }
}

TEST(BudgetShortageTest, SlightExcessByFragmentationIsNoShortage) {
  BudgetChooser chooser(1050_B);
  chooser.choose(100_B, 1000_B);
  chooser.set_memory({1060_B, 0_B});
  const StepCurve curve = nested({100}, 1000);

  ASSERT_TRUE(chooser.excess(curve));
  EXPECT_EQ(chooser.excess(curve)->least, 1060_B);
  EXPECT_FALSE(chooser.end_step(curve, true));
}

TEST(BudgetShortageTest, IfRecomputationDoesNotFitEverythingIsOffloadedBeforeAShortageIsReported) {
  BudgetChooser chooser(1050_B);
  std::optional<BudgetShortage> missed;
  const std::vector all_offloaded(2, Action::kOffload);
  int steps = 0;
  while (recomputable(chooser, 1200_B, &missed) != all_offloaded) {
    EXPECT_FALSE(missed);
    ASSERT_LT(++steps, 5);
  }
  EXPECT_TRUE(missed);

  EXPECT_EQ(recomputable(chooser, 1040_B, &missed), all_offloaded);
  EXPECT_FALSE(missed);
}

TEST(BudgetShortageTest, RecomputationIsTriedAgainAfterStepsThatFit) {
  BudgetChooser chooser(1050_B);
  const std::vector all_offloaded(2, Action::kOffload);
  while (recomputable(chooser, 1200_B) != all_offloaded) {
  }

  int steps = 0;
  while (recomputable(chooser, 1040_B) == all_offloaded)
    ASSERT_LT(++steps, 20);
}

TEST(BudgetShortageTest, WithoutHostMemoryAnExceededBudgetIsAShortage) {
  BudgetChooser chooser(1050_B);
  chooser.choose(100_B, 1000_B);
  chooser.not_offloaded();
  chooser.set_memory({1200_B, 0_B});

  const auto missed = chooser.end_step(nested({100}, 1000), true);

  ASSERT_TRUE(missed);
  EXPECT_GE(missed->least, 1200_B);
  EXPECT_TRUE(missed->host_memory_short);
}

}  // namespace
}  // namespace spillway
