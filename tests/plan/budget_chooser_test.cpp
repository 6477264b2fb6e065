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

TEST(BudgetChooserTest, ANewShapeOffloadsEverythingAndAKnownOneTheMinimum) {
  BudgetChooser chooser(1200_B);

  EXPECT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, true, true}));
  EXPECT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, false, false}));
}

TEST(BudgetChooserTest, ReservedBytesArePredictedFromTheFirstPlanOn) {
  BudgetChooser chooser(1200_B);
  step(chooser, {100, 100, 100}, 1000);
  EXPECT_EQ(chooser.shapes().predicted_reserved(), 0_B);

  step(chooser, {100, 100, 100}, 1000);
  EXPECT_EQ(chooser.shapes().predicted_reserved(), 1200_B);

  chooser.time(even_times(7));  // another plan follows
  EXPECT_EQ(chooser.shapes().predicted_reserved(), 1200_B);
}

TEST(BudgetChooserTest, TheMeasuredTimeOfAPlannedStepIsReportedAndChangesNoPlan) {
  BudgetChooser chooser(1300_B);
  step(chooser, {100, 100, 100}, 1000);
  chooser.time(even_times(7));
  step(chooser, {100, 100, 100}, 1000);
  const double predicted = chooser.planned_last()->plan.timing.total();
  ASSERT_EQ(predicted, 7);

  chooser.add_step_duration(predicted / 2);
  EXPECT_EQ(chooser.planned_last()->seconds, predicted / 2);
  step(chooser, {100, 100, 100}, 1000);

  EXPECT_EQ(chooser.planned_last()->plan.timing.total(), predicted);
}

/// even_times, as a planned step measures them: marked by storage.
StepTimes marked_times(std::size_t storages, double seconds) {
  StepTimes times = even_times(2 * storages + 1);
  for (std::size_t mark = 0; mark < times.marks.size(); ++mark) {
    times.marks[mark].seconds *= seconds;
    times.marks[mark].used = mark > storages;
    if (mark == 0) continue;
    times.marks[mark].storage = mark > storages ? 2 * storages - mark : mark - 1;
  }
  times.end *= seconds;
  return times;
}

/// Three storages that were recorded at two seconds for each event.
BudgetChooser recorded_chooser() {
  BudgetChooser chooser(1200_B);
  step(chooser, {100, 100, 100}, 1000);
  chooser.time(marked_times(3, 2));
  step(chooser, {100, 100, 100}, 1000);
  return chooser;
}

/// Reports the duration of the last step and runs another one.
void measure(BudgetChooser& chooser, double seconds) {
  chooser.time(marked_times(3, seconds));
  step(chooser, {100, 100, 100}, 1000);
}

double predicted(const BudgetChooser& chooser) {
  return chooser.planned_last()->plan.timing.compute;
}

TEST(BudgetChooserTest, PlannedStepsAreMeasuredUntilTheirTimesSettle) {
  BudgetChooser chooser = recorded_chooser();
  int measured = 0;
  for (int steps = 0; steps < 30; ++steps) {
    for (int storage = 0; storage < 3; ++storage)
      chooser.choose(100_B, 1000_B);
    const bool recording = chooser.needs_times();
    chooser.abandon_step();
    if (!recording) break;
    ++measured;
    measure(chooser, 1);
  }

  EXPECT_EQ(measured, 3);  // the first was faster than recorded, and all three changed nothing
  EXPECT_EQ(predicted(chooser), 7);
}

TEST(BudgetChooserTest, TimesOfAPlannedStepOfAnotherRegionAreIgnored) {
  BudgetChooser chooser = recorded_chooser();
  measure(chooser, 3);
  measure(chooser, 3);

  chooser.ended_elsewhere();
  measure(chooser, 3);
  EXPECT_EQ(predicted(chooser), 14);

  measure(chooser, 3);
  EXPECT_EQ(predicted(chooser), 21);
}

TEST(BudgetChooserTest, TimesOfAStepWithUnsettledMemoryAreIgnored) {
  BudgetChooser chooser = recorded_chooser();
  measure(chooser, 3);

  chooser.set_memory({0_B, 0_B, 0_B, true});
  measure(chooser, 3);
  measure(chooser, 3.8);  // of the unsettled step
  measure(chooser, 3);
  measure(chooser, 3);
  EXPECT_EQ(predicted(chooser), 14);

  measure(chooser, 3);
  EXPECT_EQ(predicted(chooser), 21);
}

TEST(BudgetChooserTest, TimesThatArriveLateAreThoseOfTheirStep) {
  BudgetChooser chooser = recorded_chooser();
  chooser.set_memory({0_B, 0_B, 0_B, true});
  step(chooser, {100, 100, 100}, 1000);
  step(chooser, {100, 100, 100}, 1000);
  for (int settled = 0; settled < 3; ++settled) {
    chooser.time(marked_times(3, 3), 1);  // of the unsettled step, then of settled ones
    EXPECT_EQ(predicted(chooser), 14);
    step(chooser, {100, 100, 100}, 1000);
  }
  step(chooser, {50, 50}, 1000);  // is recorded
  ASSERT_TRUE(chooser.awaits_times());

  chooser.time(marked_times(3, 3), 1);

  EXPECT_TRUE(chooser.awaits_times());
  step(chooser, {100, 100, 100}, 1000);
  EXPECT_EQ(predicted(chooser), 21);
}

TEST(BudgetChooserTest, TheTimeOfAStepIsTheMedianOfTheLastNineThatFollowedItsPlan) {
  BudgetChooser chooser(1300_B);
  step(chooser, {100, 100, 100}, 1000);
  chooser.time(even_times(7));
  step(chooser, {100, 100, 100}, 1000);
  for (const double seconds : {90, 90, 90, 1, 1, 1, 1, 5, 9, 9, 9, 9}) {
    chooser.add_step_duration(seconds);
    step(chooser, {100, 100, 100}, 1000);
  }

  EXPECT_EQ(chooser.planned_last()->seconds, 5);
}

TEST(BudgetChooserTest, AStepTimedLateCountsForThePlanThatItFollowed) {
  BudgetChooser chooser(1300_B);
  step(chooser, {100, 100, 100}, 1000);
  chooser.time(even_times(7));
  for (int each = 0; each < 3; ++each)
    step(chooser, {100, 100, 100}, 1000);
  step(chooser, {50, 50}, 1000);  // followed no plan

  chooser.add_step_duration(9, 0);
  step(chooser, {100, 100, 100}, 1000);
  chooser.add_step_duration(9, 1);
  EXPECT_EQ(chooser.planned_last()->seconds, std::nullopt);
  for (const auto& [seconds, steps_ago] : {std::pair{3.0, 4U}, {5.0, 3U}, {4.0, 2U}})
    chooser.add_step_duration(seconds, steps_ago);

  EXPECT_EQ(chooser.planned_last()->seconds, 4);
}

TEST(BudgetChooserTest, TheLeastRecentlyUsedShapeIsForgottenFirst) {
  BudgetChooser chooser(1250_B);
  const auto shape = [](std::uint64_t each) {
    return std::vector<std::uint64_t>{100 + each, 100, 100};
  };
  const auto is_recorded = [&](std::uint64_t each) {
    const auto offloaded = step(chooser, shape(each), 1000);
    return std::find(offloaded.begin(), offloaded.end(), false) == offloaded.end();
  };
  for (std::uint64_t each = 0; each < 300; ++each)
    step(chooser, shape(each), 1000);

  EXPECT_FALSE(is_recorded(299));
  EXPECT_FALSE(is_recorded(100));
  EXPECT_TRUE(is_recorded(0));
  EXPECT_FALSE(is_recorded(100));
}

TEST(BudgetChooserTest, DurationsOfAnotherShapeOrRegionAreIgnored) {
  BudgetChooser chooser(1300_B);
  step(chooser, {100, 100, 100}, 1000);
  chooser.time(even_times(7));
  step(chooser, {100, 100, 100}, 1000);
  ASSERT_EQ(chooser.planned_last()->plan.timing.total(), 7);

  step(chooser, {100, 100}, 1000);  // begins as the planned one, and ends before it
  chooser.add_step_duration(1);
  step(chooser, {100, 100, 100}, 1000);
  EXPECT_EQ(chooser.planned_last()->plan.timing.total(), 7);
  EXPECT_EQ(chooser.planned_last()->seconds, std::nullopt);

  chooser.ended_elsewhere();
  chooser.add_step_duration(1);
  step(chooser, {100, 100, 100}, 1000);
  EXPECT_EQ(chooser.planned_last()->plan.timing.total(), 7);
  EXPECT_EQ(chooser.planned_last()->seconds, std::nullopt);

  chooser.add_step_duration(7);
  EXPECT_EQ(chooser.planned_last()->seconds, 7);
}

TEST(BudgetChooserTest, AfterAStepExceedsTheBudgetPlansLeaveTheExcessFree) {
  BudgetChooser chooser(1200_B);
  step(chooser, {100, 100, 100}, 1000);
  ASSERT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, false, false}));

  chooser.choose(100_B, 1000_B);
  chooser.choose(100_B, 1000_B);
  chooser.choose(100_B, 1000_B);
  StepCurve over = nested({100, 100, 100}, 1000);
  over.allocated[3] = 1250;
  chooser.end_step(over);

  EXPECT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, true, true}));
  EXPECT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, true, false}));
}

TEST(BudgetChooserTest, RecomputableStoragesMakeAnotherShape) {
  BudgetChooser chooser(2000_B);
  step(chooser, {100, 100}, 1000);
  step(chooser, {100, 100}, 1000);

  EXPECT_EQ(chooser.choose(100_B, 1000_B, true), Action::kRecompute);
  EXPECT_FALSE(chooser.matches_known());
}

TEST(BudgetChooserTest, OffloadedStoragesAreFetchedAsEarlyAsThereIsRoom) {
  BudgetChooser chooser(1350_B);
  for (int steps = 0; steps < 2; ++steps) {
    step(chooser, {100, 100, 100, 100, 100}, 1000);
    if (steps == 0) chooser.time(even_times(11));
  }

  for (int storage = 0; storage < 5; ++storage)
    chooser.choose(100_B, 1000_B);

  // The first two are offloaded: each is fetched once a resident one has been used and freed, or at
  // one of the uses after it, up to its own.
  std::vector<std::vector<std::size_t>> due;
  for (std::size_t first_use = 5; first_use-- > 0;)
    due.push_back(chooser.due_with(first_use));
  EXPECT_EQ(due, (std::vector<std::vector<std::size_t>>{{1}, {1, 0}, {1, 0}, {0}, {}}));
}

TEST(BudgetChooserTest, WithATimeLimitAsLittleIsResidentAsTheTimeAllows) {
  BudgetChooser quick(2000_B, 1.0);
  BudgetChooser slow(2000_B, 100);
  for (BudgetChooser* chooser : {&quick, &slow}) {
    step(*chooser, {100, 100, 100}, 1000);
    StepTimes times = even_times(7);
    times.link = {50, 50, 0};  // two seconds for each
    chooser->time(times);
  }

  const std::vector<bool> free_moves = step(quick, {100, 100, 100}, 1000);
  EXPECT_EQ(step(slow, {100, 100, 100}, 1000), (std::vector{true, true, true}));

  EXPECT_EQ(quick.planned_last()->plan.timing.total(), 7);
  // It is compared with what could be had within the memory that it was made for, not with 2000.
  EXPECT_EQ(slow.planned_last()->budget, slow.planned_last()->plan.least);
  EXPECT_NE(free_moves, (std::vector{true, true, true}));
}

TEST(BudgetChooserTest, AStepThatBeginsLikeTheOneItReplacesIsKnownNext) {
  BudgetChooser chooser(1200_B);
  for (std::uint64_t last = 1; last <= 256; ++last)
    step(chooser, {100, last}, 1000);

  step(chooser, {100}, 1000);  // one shape too many
  const std::uint64_t records = chooser.counts().records;
  step(chooser, {100}, 1000);
  step(chooser, {100, 256}, 1000);
  EXPECT_EQ(chooser.counts().records, records);

  step(chooser, {100, 1}, 1000);
  EXPECT_EQ(chooser.counts().records, records + 1);
}

TEST(BudgetChooserTest, AFirstStepThatBeganWithLessIsRecordedAgainOnce) {
  BudgetChooser chooser(1200_B);
  step(chooser, {100, 100, 100}, 900);

  EXPECT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, true, true}));
  EXPECT_EQ(step(chooser, {100, 100, 100}, 1100), (std::vector{true, true, false}));
}

TEST(BudgetChooserTest, FromTheFirstDifferenceOnEverythingIsOffloadedAndTheNewShapeIsRecordedNext) {
  BudgetChooser chooser(2000_B);
  step(chooser, {100, 100, 100}, 1000);

  EXPECT_EQ(step(chooser, {100, 200, 100}, 1000), (std::vector{false, true, true}));
  EXPECT_EQ(chooser.counts().mismatches, 1U);
  EXPECT_EQ(step(chooser, {100, 200, 100}, 1000), (std::vector{true, true, true}));
  EXPECT_EQ(step(chooser, {100, 200, 100}, 1000), (std::vector{false, false, false}));
  EXPECT_EQ(chooser.counts().mismatches, 1U);
}

TEST(BudgetChooserTest, UntilTwoShapesDifferAStorageThatEitherOffloadsIsOffloaded) {
  BudgetChooser chooser(1200_B);
  const std::vector<std::uint64_t> small{100, 50, 50};
  const std::vector<std::uint64_t> large{100, 100, 100};
  for (int steps = 0; steps < 3; ++steps) {
    step(chooser, small, 1000);
    step(chooser, large, 1000);
  }
  const std::uint64_t mismatches = chooser.counts().mismatches;

  EXPECT_EQ(step(chooser, small, 1000), (std::vector{true, false, false}));
  EXPECT_EQ(step(chooser, large, 1000), (std::vector{true, false, false}));
  EXPECT_EQ(chooser.counts().mismatches, mismatches);
}

TEST(BudgetChooserTest, AShorterStepIsAShapeOfItsOwn) {
  BudgetChooser chooser(1200_B);
  step(chooser, {100, 100, 100}, 1000);

  step(chooser, {100, 100}, 1000);
  step(chooser, {100, 100}, 1000);

  EXPECT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, false, false}));
}

TEST(BudgetChooserTest, AStepWithoutABackwardPassLeavesThePlanAsItWas) {
  BudgetChooser chooser(1200_B);
  step(chooser, {100, 100, 100}, 1000);
  chooser.choose(100_B, 1000_B);

  chooser.abandon_step();

  EXPECT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, false, false}));
}

TEST(BudgetChooserTest, AStepWithAFailedOffloadIsNotRecorded) {
  BudgetChooser chooser(1200_B);
  chooser.choose(100_B, 1000_B);
  chooser.not_offloaded();
  chooser.end_step(nested({100}, 1000));

  EXPECT_EQ(chooser.choose(100_B, 1000_B), Action::kOffload);
}

}  // namespace
}  // namespace spillway
