// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/step_times.h"

#include "tests/plan/steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace spillway {
namespace {

using namespace literals;

TEST(StepTimesTest, AProfileHasTheMeasurementsOfEachStorage) {
  const StepCurve curve = nested({100, 100}, 1000);
  StepTimes times;
  times.link = {1000, 1000, 0};
  times.marks = {{0, 0, 0, false},
                 {0, 0.125, 1, true},
                 {1, 0.25, StepTimes::kNoStorage, true},
                 {1, 1, 1, false},
                 {1, 1.5, 1, false}};
  times.end = 2;
  times.recompute = {0.25, 0.5};

  const StepProfile profile =
      spillway::profile_of(RecordedStep(curve, 2), {100_B, 100_B}, {true, false}, &times);

  // It is saved first at 1 s, within an event that begins at 0.25 s.
  EXPECT_EQ(profile.candidates[1].windows.front().ready, 1u);
  EXPECT_EQ(profile.candidates[1].windows.front().ready_after, 0.75);
  EXPECT_EQ(profile.candidates[0].recompute, 0.25);
  EXPECT_EQ(profile.candidates[1].recompute, std::nullopt);
}

StepTimes::Mark saved(std::size_t storage, double seconds) {
  return {storage, seconds, storage, false};
}

StepTimes::Mark used(std::size_t storage, double seconds) {
  return {storage + 2, seconds, storage, true};
}

/// Two storages that are saved and used again, at these seconds.
StepTimes times_at(double first, double second, double back, double last, double end) {
  StepTimes times;
  times.marks = {{0, 0}, saved(0, first), saved(1, second), used(1, back), used(0, last)};
  times.end = end;
  times.recompute = {2, 0};
  return times;
}

std::vector<double> seconds_of(const StepTimes& times) {
  std::vector<double> seconds;
  for (const StepTimes::Mark& mark : times.marks)
    seconds.push_back(mark.seconds);
  return seconds;
}

TEST(StepTimesTest, MarksGetTheMedianTimeOfLaterSteps) {
  const StepTimes times =
      typical(times_at(10, 20, 30, 40, 100),
              {times_at(1, 3, 4, 5, 9), times_at(2, 4, 6, 8, 10), times_at(3, 3, 7, 7, 20)});

  EXPECT_EQ(seconds_of(times), (std::vector<double>{0, 2, 3, 6, 7}));
  EXPECT_EQ(times.end, 10);
}

TEST(StepTimesTest, AMarkMissingInALaterStepKeepsItsRelativePosition) {
  StepTimes seen = times_at(1, 2, 3, 8, 10);
  seen.marks.erase(seen.marks.begin() + 3);  // the second storage was kept, and never used

  const StepTimes times = typical(times_at(10, 20, 50, 60, 100), {seen});

  EXPECT_EQ(seconds_of(times), (std::vector<double>{0, 1, 2, 6.5, 8}));
  EXPECT_EQ(times.end, 10);
}

TEST(StepTimesTest, MarksMissingAtTheEndsOfALaterStepKeepTheirPosition) {
  StepTimes seen = times_at(4, 5, 6, 7, 10);
  seen.marks = {seen.marks[2]};

  const StepTimes times = typical(times_at(10, 20, 30, 40, 60), {seen});

  EXPECT_EQ(seconds_of(times), (std::vector<double>{0, 2.5, 5, 6.25, 7.5}));
  EXPECT_EQ(times.end, 10);
}

TEST(StepTimesTest, AmongReorderedMarksTheLongestOrderedSequenceCounts) {
  StepTimes seen = times_at(1, 2, 3, 4, 5);
  std::swap(seen.marks[1].storage, seen.marks[2].storage);  // saved the other way round

  const StepTimes times = typical(times_at(10, 20, 30, 40, 50), {seen});

  EXPECT_EQ(seconds_of(times), (std::vector<double>{0, 0.5, 1, 3, 4}));
  EXPECT_EQ(times.end, 5);
}

TEST(StepTimesTest, MarksAtOneTimeStayInOrderDespiteRounding) {
  for (int i = 1; i < 2000; ++i) {
    // The second and the third one are at one time, and the second one is missing.
    const StepTimes recorded = times_at(0.1, 0.1 + 0.001 * i, 0.1 + 0.001 * i, 3, 5);
    StepTimes seen = times_at(0.1, 0.2, 0.1 + 0.0007 * i, 2, 3);
    seen.marks.erase(seen.marks.begin() + 2);

    const std::vector<double> seconds = seconds_of(typical(recorded, {seen}));

    ASSERT_TRUE(std::is_sorted(seconds.begin(), seconds.end())) << i;
  }
}

TEST(StepTimesTest, AStorageUsedTwiceCountsAtItsFirstUse) {
  StepTimes recorded = times_at(10, 20, 30, 40, 60);
  recorded.marks.push_back({9, 50, 1, true});
  StepTimes seen = times_at(1, 2, 3, 4, 6);
  seen.marks.push_back({9, 5, 1, true});

  EXPECT_EQ(seconds_of(typical(recorded, {seen})), (std::vector<double>{0, 1, 2, 3, 4, 5}));
}

TEST(StepTimesTest, WithoutAMeasurementARecomputationKeepsItsTime) {
  const StepTimes recorded = times_at(1, 2, 3, 4, 5);
  std::vector<StepTimes> seen(3, recorded);
  seen[0].recompute = {1, 0};
  seen[1].recompute = {4};
  seen[2].recompute = {3, 0};

  EXPECT_EQ(typical(recorded, seen).recompute, (std::vector<double>{3, 0}));
  seen[0].recompute = seen[1].recompute = seen[2].recompute = {0, 7};
  EXPECT_EQ(typical(recorded, seen).recompute, (std::vector<double>{2, 7}));
}

}  // namespace
}  // namespace spillway
