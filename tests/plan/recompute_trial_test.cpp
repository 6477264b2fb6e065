// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/recompute_trial.h"

#include "allocator/plan/budget_chooser.h"
#include "tests/plan/offered_steps.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

using namespace literals;

/// What a step does with the first of two storages of `size` bytes that can be recomputed. With
/// both offloaded or recomputed it needs 1000 bytes.
Action first_action(BudgetChooser& chooser, std::uint64_t size) {
  const Action first = chooser.choose(Bytes{size}, 1000_B, true);
  chooser.choose(Bytes{size}, 1000_B, true);
  chooser.end_step(nested({size, size}, 1000));
  return first;
}

TEST(RecomputeTrialTest, AStepLargerThanAllBeforeOffloadsInsteadOfRecomputing) {
  BudgetChooser chooser(1010_B);
  ASSERT_EQ(first_action(chooser, 100), Action::kRecompute);

  EXPECT_EQ(first_action(chooser, 200), Action::kOffload);
  EXPECT_EQ(first_action(chooser, 50), Action::kRecompute);
}

TEST(RecomputeTrialTest, TheNextStepOfThatSizeRecomputes) {
  BudgetChooser chooser(1010_B);
  first_action(chooser, 100);
  ASSERT_EQ(first_action(chooser, 200), Action::kOffload);

  EXPECT_EQ(first_action(chooser, 200), Action::kRecompute);
  EXPECT_EQ(first_action(chooser, 150), Action::kRecompute);
}

TEST(RecomputeTrialTest, ASmallerStepDoesNotLowerWhatMayRecompute) {
  RecomputeTrial trial(4000_B);
  trial.recomputed(100_B);
  trial.needed(300_B, 3900_B);
  trial.needed(10_B, 3400_B);

  trial.begin_step(300_B);
  EXPECT_TRUE(trial.on());
}

TEST(RecomputeTrialTest, StepsAfterOneThatExceededTheBudgetOffloadFourTimesAsLongEachTime) {
  RecomputeTrial trial(1000_B);
  const auto steps_without = [&] {
    int steps = 0;
    for (trial.begin_step(1_B); !trial.on(); trial.begin_step(1_B)) {
      trial.end_step(false);
      ++steps;
    }
    return steps;
  };
  int before = 0;
  for (int round = 0; round < 3; ++round) {
    trial.end_step(true);
    const int steps = steps_without();
    EXPECT_EQ(steps, before == 0 ? 4 : 4 * before);
    before = steps;
  }
}

TEST(RecomputeTrialTest, ALargerStepRecomputesIfSmallerOnesLeftRoomForIt) {
  BudgetChooser chooser(4000_B);  // three and a half times what the first one needs
  first_action(chooser, 100);

  EXPECT_EQ(first_action(chooser, 300), Action::kRecompute);
  EXPECT_EQ(first_action(chooser, 2000), Action::kOffload);
}

}  // namespace
}  // namespace spillway
