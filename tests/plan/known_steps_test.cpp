// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/budget_chooser.h"
#include "allocator/plan/step_times.h"
#include "tests/plan/offered_steps.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <utility>

namespace spillway {
namespace {

using namespace literals;

TEST(KnownStepsTest, StepsOfAnEarlierRunArePlannedFromTheFirstStepOn) {
  BudgetChooser chooser(1200_B);
  step(chooser, {100, 100, 100}, 1000);
  step(chooser, {100, 100, 100}, 1000);
  const std::vector<KnownStep> known = chooser.shapes().known();
  ASSERT_EQ(known.size(), 1u);

  BudgetChooser other(1200_B);
  ASSERT_TRUE(other.learn(known.front()).ok());

  EXPECT_EQ(step(other, {100, 100, 100}, 1000), (std::vector{true, false, false}));
}

TEST(KnownStepsTest, AFirstStepOfAnotherRunAllocatesItsPersistentMemory) {
  BudgetChooser chooser(1200_B);
  step(chooser, {100, 100, 100}, 1000);
  step(chooser, {100, 100, 100}, 1000);
  BudgetChooser other(1200_B);
  ASSERT_TRUE(other.learn(chooser.shapes().known().front()).ok());

  EXPECT_EQ(step(other, {100, 100, 100}, 900), (std::vector{true, false, false}));
  EXPECT_EQ(step(other, {100, 100, 100}, 900), (std::vector{false, false, false}));
}

TEST(KnownStepsTest, KnownStepsAreNotReplaced) {
  BudgetChooser chooser(1200_B);
  step(chooser, {100, 100, 100}, 1000);
  step(chooser, {100, 100, 100}, 1000);
  KnownStep wrong = chooser.shapes().known().front();
  for (std::uint64_t& peak : wrong.recorded.peaks)
    peak = 5000;

  ASSERT_TRUE(chooser.learn(wrong).ok());

  EXPECT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, false, false}));
}

TEST(KnownStepsTest, ImpossibleRecordingsAreRejected) {
  BudgetChooser chooser(1200_B);
  step(chooser, {100, 100, 100}, 1000);
  chooser.time(even_times(7));
  step(chooser, {100, 100, 100}, 1000);
  const KnownStep right = chooser.shapes().known().front();
  ASSERT_TRUE(check_known(right).ok());
  const std::vector<void (*)(KnownStep&)> spoilers = {
      [](KnownStep& step) { step.sizes.clear(); },
      [](KnownStep& step) { step.sizes[0] = Bytes{~0ULL}; },
      [](KnownStep& step) { step.recomputable.pop_back(); },
      [](KnownStep& step) { step.recorded.peaks.clear(); },
      [](KnownStep& step) { step.recorded.peaks[0] = ~0ULL; },
      [](KnownStep& step) { step.recorded.edges.pop_back(); },
      [](KnownStep& step) { std::reverse(step.recorded.edges.begin(), step.recorded.edges.end()); },
      [](KnownStep& step) { step.recorded.absences[0].storage = 3; },
      [](KnownStep& step) { step.recorded.absences[2].storage = 0; },
      [](KnownStep& step) { step.recorded.absences[0].to = 1000; },
      [](KnownStep& step) { step.recorded.absences[0].from = step.recorded.absences[0].to; },
      [](KnownStep& step) { step.recorded.storages = 4; },
      [](KnownStep& step) { step.times->marks[1].seconds = -1; },
      [](KnownStep& step) { step.times->end = 0; },
      [](KnownStep& step) {
        step.times->recompute = {0, 0, 0, 0};
      },
      [](KnownStep& step) { step.times->link.out = 0.0 / 0.0; },
  };
  for (std::size_t each = 0; each < spoilers.size(); ++each) {
    KnownStep wrong = right;
    spoilers[each](wrong);
    BudgetChooser other(1200_B);

    EXPECT_EQ(other.learn(wrong).code(), Code::kInvalidArgument) << each;
    EXPECT_EQ(other.choose(100_B, 1000_B), Action::kOffload) << each;
    EXPECT_FALSE(other.matches_known()) << each;
  }
}

}  // namespace
}  // namespace spillway
