// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/step_times.h"

#include "tests/plan/steps.h"

#include <gtest/gtest.h>

#include <optional>

namespace spillway {
namespace {

using namespace literals;

TEST(StepTimesTest, AProfileHasWhatWasMeasuredOfEachStorage) {
  const StepCurve curve = nested({100, 100}, 1000);
  StepTimes times;
  times.link = {1000, 1000, 0};
  times.turn = 2;
  times.saved = {0, 1};
  times.rebuild = {0.25, 0.5};

  const StepProfile profile =
      spillway::profile_of(RecordedStep(curve, 2), {100_B, 100_B}, {true, false}, &times);

  EXPECT_EQ(profile.turn, 2u);
  EXPECT_EQ(profile.storages[1].saved, 1u);
  EXPECT_EQ(profile.storages[0].rebuild, 0.25);
  EXPECT_EQ(profile.storages[1].rebuild, std::nullopt);
}

StepTimes::Mark saved(std::size_t storage, double seconds) {
  return {storage, seconds, storage, false};
}

StepTimes::Mark wanted(std::size_t storage, double seconds) {
  return {storage + 2, seconds, storage, true};
}

/// Two storages that are saved and wanted again, at these seconds.
StepTimes times_at(double first, double second, double back, double last, double end) {
  StepTimes times;
  times.marks = {{0, 0}, saved(0, first), saved(1, second), wanted(1, back), wanted(0, last)};
  times.end = end;
  times.rebuild = {2, 0};
  return times;
}

std::vector<double> seconds_of(const StepTimes& times) {
  std::vector<double> seconds;
  for (const StepTimes::Mark& mark : times.marks)
    seconds.push_back(mark.seconds);
  return seconds;
}

TEST(StepTimesTest, OfEachStretchTheShorterOneIsBelieved) {
  StepTimes times = times_at(10, 11, 20, 21, 30);

  const double share = refine(times, times_at(1, 8, 9, 19, 20));

  EXPECT_EQ(seconds_of(times), (std::vector<double>{0, 1, 2, 3, 4}));
  EXPECT_EQ(times.end, 5);
  EXPECT_DOUBLE_EQ(share, 5.0 / 6);
}

TEST(StepTimesTest, ALongerStepChangesNothing) {
  StepTimes times = times_at(1, 2, 3, 4, 5);

  EXPECT_EQ(refine(times, times_at(2, 4, 6, 8, 10)), 0);
  EXPECT_EQ(seconds_of(times), (std::vector<double>{0, 1, 2, 3, 4}));
}

TEST(StepTimesTest, OnlyStretchesBetweenTheSameTwoMarksAreCompared) {
  StepTimes times = times_at(10, 20, 30, 40, 50);
  StepTimes seen = times_at(1, 2, 3, 4, 5);
  std::swap(seen.marks[3].storage, seen.marks[4].storage);  // wanted the other way round
  seen.end = 40;

  refine(times, seen);

  EXPECT_EQ(seconds_of(times), (std::vector<double>{0, 1, 2, 12, 22}));
  EXPECT_EQ(times.end, 32);
}

TEST(StepTimesTest, AllOfComputingTakesNoLongerThanInTheQuickerStep) {
  StepTimes times = times_at(10, 20, 30, 40, 50);
  StepTimes seen = times_at(10, 12, 13, 14, 16);
  std::swap(seen.marks[1].storage, seen.marks[4].storage);
  std::swap(seen.marks[2].storage, seen.marks[3].storage);

  EXPECT_NEAR(refine(times, seen), 1 - 16.0 / 50, 1e-12);
  EXPECT_NEAR(times.end, 16, 1e-12);
}

TEST(StepTimesTest, ComputingAgainIsBelievedAtItsQuickest) {
  StepTimes times = times_at(1, 2, 3, 4, 5);
  StepTimes seen = times_at(1, 2, 3, 4, 5);
  seen.rebuild = {1, 5};

  refine(times, seen);

  EXPECT_EQ(times.rebuild, (std::vector<double>{1, 0}));
  seen.rebuild = {0};  // it was kept
  refine(times, seen);
  EXPECT_EQ(times.rebuild, (std::vector<double>{1, 0}));
}

}  // namespace
}  // namespace spillway
