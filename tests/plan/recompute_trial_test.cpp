// SPDX-License-Identifier: Apache-2.0
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

TEST(RecomputeTrialTest, AStepThatIsLargerThanAllBeforeOffloadsInsteadOfRecomputing) {
  BudgetChooser chooser(1010_B);
  ASSERT_EQ(first_action(chooser, 100), Action::kRebuild);

  EXPECT_EQ(first_action(chooser, 200), Action::kMove);
  EXPECT_EQ(first_action(chooser, 50), Action::kRebuild);
}

TEST(RecomputeTrialTest, TheNextStepsOfThatSizeOffloadToo) {
  BudgetChooser chooser(1010_B);
  first_action(chooser, 100);
  ASSERT_EQ(first_action(chooser, 200), Action::kMove);

  EXPECT_EQ(first_action(chooser, 200), Action::kMove);
}

TEST(RecomputeTrialTest, ALargerStepRecomputesWhereSmallerOnesHaveLeftRoomForIt) {
  BudgetChooser chooser(4000_B);  // three and a half times what the first one needs
  first_action(chooser, 100);

  EXPECT_EQ(first_action(chooser, 300), Action::kRebuild);
  EXPECT_EQ(first_action(chooser, 2000), Action::kMove);
}

}  // namespace
}  // namespace spillway
