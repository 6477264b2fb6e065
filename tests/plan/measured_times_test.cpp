// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/measured_times.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

/// A step whose one storage is saved at once, and first used when half of it is over.
StepTimes taking(double seconds, double recompute = 0) {
  StepTimes times;
  times.marks = {{0, 0, 0, false}, {1, seconds / 2, 0, true}};
  times.end = seconds;
  times.recompute = {recompute};
  return times;
}

constexpr bool kStalled = true;

TEST(MeasuredTimesTest, TheMedianOfThreeStepsIsUsed) {
  MeasuredTimes times(taking(2));

  EXPECT_FALSE(times.saw(taking(3), !kStalled));
  EXPECT_FALSE(times.saw(taking(5), !kStalled));
  EXPECT_EQ(times.believed().end, 2);
  EXPECT_TRUE(times.saw(taking(4), !kStalled));

  EXPECT_EQ(times.believed().end, 4);
  EXPECT_EQ(times.believed().marks[1].seconds, 2);
  EXPECT_TRUE(times.needed());
}

TEST(MeasuredTimesTest, LongerStepsAreUsedToo) {
  MeasuredTimes times(taking(3));
  times.saw(taking(4), !kStalled);
  times.saw(taking(4), !kStalled);

  EXPECT_TRUE(times.saw(taking(4), !kStalled));

  EXPECT_EQ(times.believed().end, 4);
}

TEST(MeasuredTimesTest, DifferencesWithinTheNoiseMakeNoNewPlan) {
  MeasuredTimes times(taking(4.45));
  times.saw(taking(4.42), !kStalled);
  times.saw(taking(5), !kStalled);

  EXPECT_FALSE(times.saw(taking(4.5), !kStalled));

  EXPECT_EQ(times.believed().end, 4.45);
  EXPECT_FALSE(times.needed());
}

TEST(MeasuredTimesTest, OneOutlierChangesNothing) {
  MeasuredTimes times(taking(3));
  times.saw(taking(7), !kStalled);
  times.saw(taking(4), !kStalled);

  EXPECT_TRUE(times.saw(taking(4), !kStalled));

  EXPECT_EQ(times.believed().end, 4);
}

TEST(MeasuredTimesTest, OnlyConsecutiveStepsWithoutStallsAreUsed) {
  MeasuredTimes times(taking(3));
  times.saw(taking(4), !kStalled);
  times.saw(taking(4), !kStalled);
  times.saw(taking(100), kStalled);
  EXPECT_FALSE(times.saw(taking(4), !kStalled));
  EXPECT_FALSE(times.saw(taking(4), !kStalled));

  EXPECT_TRUE(times.saw(taking(4), !kStalled));

  EXPECT_EQ(times.believed().end, 4);
}

TEST(MeasuredTimesTest, AFasterStepReplacesADelayedRecordingAtOnce) {
  MeasuredTimes times(taking(9));
  EXPECT_FALSE(times.saw(taking(8.95), kStalled));
  EXPECT_EQ(times.believed().end, 9);

  EXPECT_TRUE(times.saw(taking(8), kStalled));
  EXPECT_EQ(times.believed().end, 8);
  EXPECT_FALSE(times.saw(taking(8), kStalled));
  EXPECT_TRUE(times.saw(taking(5), !kStalled));
  EXPECT_EQ(times.believed().end, 5);
}

TEST(MeasuredTimesTest, AStepThatWasTooFastIsCorrectedByTheMedian) {
  MeasuredTimes times(taking(9));
  EXPECT_TRUE(times.saw(taking(3), kStalled));

  times.saw(taking(4), !kStalled);
  times.saw(taking(4), !kStalled);
  EXPECT_TRUE(times.saw(taking(4), !kStalled));
  EXPECT_EQ(times.believed().end, 4);

  EXPECT_FALSE(times.saw(taking(2), kStalled));  // a fast one is no news any more
  EXPECT_EQ(times.believed().end, 4);
}

TEST(MeasuredTimesTest, AnotherRecomputationTimeMakesANewPlan) {
  MeasuredTimes times(taking(4, 1));
  times.saw(taking(4, 2), !kStalled);
  times.saw(taking(4, 2), !kStalled);

  EXPECT_TRUE(times.saw(taking(4, 2), !kStalled));

  EXPECT_EQ(times.believed().recompute[0], 2);
  EXPECT_FALSE(times.saw(taking(4), !kStalled));  // it was kept
  EXPECT_FALSE(times.saw(taking(4), !kStalled));
  EXPECT_FALSE(times.saw(taking(4), !kStalled));
  EXPECT_FALSE(times.needed());
}

TEST(MeasuredTimesTest, StepsThatNeverSettleAreMeasuredAFewTimes) {
  MeasuredTimes times(taking(1));
  int plans = 0;
  double seconds = 1;
  for (int step = 0; step < 100 && times.needed(); ++step) {
    if (step % 3 == 0) seconds *= 2;
    if (times.saw(taking(seconds), !kStalled)) ++plans;
  }

  EXPECT_EQ(plans, 6);
  EXPECT_FALSE(times.needed());
}

TEST(MeasuredTimesTest, MeasuringEndsEvenIfEveryThirdStepStalls) {
  MeasuredTimes times(taking(5));
  int steps = 0;
  for (; steps < 1000 && times.needed(); ++steps)
    EXPECT_EQ(times.saw(taking(4), steps % 3 == 2), steps == 0) << steps;

  EXPECT_LT(steps, 100);
  EXPECT_EQ(times.believed().end, 4);
}

}  // namespace
}  // namespace spillway
