// SPDX-License-Identifier: Apache-2.0
// Sequences that are kept until a step has no room (BudgetChooser::keep_unplanned).
#include "allocator/plan/budget_chooser.h"
#include "tests/plan/offered_steps.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

using namespace literals;

const std::vector<bool> kKept{false, false, false};
const std::vector<bool> kOffloaded{true, true, true};

class UnplannedStepsTest : public ::testing::Test {
 protected:
  UnplannedStepsTest() { chooser_.keep_unplanned(); }

  /// A step of three storages of 100 bytes that begins with `allocated` bytes. `pressed`: it had to
  /// offload something for which the device had no room.
  std::vector<bool> step(std::uint64_t allocated, bool pressed = false) {
    chooser_.set_memory({.reserved = {}, .fewest_reserved = {}, .pressed = pressed});
    return spillway::step(chooser_, {100, 100, 100}, allocated);
  }

  BudgetChooser chooser_{1200_B};
};

TEST_F(UnplannedStepsTest, WhatHasRoomIsKeptFromTheFirstStepOn) {
  for (int steps = 0; steps < 5; ++steps)
    EXPECT_EQ(step(500), kKept);
  EXPECT_EQ(chooser_.counts().records, 0U);
  EXPECT_EQ(chooser_.choose(100_B, 500_B), Action::kKeep);
  EXPECT_FALSE(chooser_.needs_times());
}

TEST_F(UnplannedStepsTest, AStepWithoutRoomIsRecordedNextAndThenPlanned) {
  EXPECT_EQ(step(1000, true), kKept);
  EXPECT_EQ(step(1000), kOffloaded);
  EXPECT_EQ(step(1000), (std::vector{true, false, false}));
}

TEST_F(UnplannedStepsTest, ASequenceThatFittedIsRecordedOnceItHasNoRoom) {
  EXPECT_EQ(step(500), kKept);
  EXPECT_EQ(step(500, true), kKept);
  EXPECT_EQ(step(500), kOffloaded);
}

TEST_F(UnplannedStepsTest, OneRecordingIsEnoughHoweverTheNextStepBegins) {
  step(1000, true);
  step(1000);
  EXPECT_EQ(step(990), (std::vector{true, false, false}));
}

TEST_F(UnplannedStepsTest, WithoutPressureAStepThatExceedsTheBudgetHadNoRoom) {
  EXPECT_EQ(step(1000), kKept);  // 1,300 bytes of 1,200
  EXPECT_EQ(step(1000), kOffloaded);
}

TEST_F(UnplannedStepsTest, AnotherSequenceIsKeptWhateverIsKnownOfTheFirst) {
  step(1000, true);
  step(1000);
  EXPECT_EQ(spillway::step(chooser_, {70, 70}, 500), (std::vector{false, false}));
}

TEST_F(UnplannedStepsTest, ASequenceThatBeginsLikeOneThatFittedIsKept) {
  step(500);
  for (int steps = 0; steps < 3; ++steps) {
    EXPECT_EQ(spillway::step(chooser_, {100, 70}, 500), (std::vector{false, false}));
    EXPECT_EQ(spillway::step(chooser_, {100, 100}, 500), (std::vector{false, false}));
  }
  EXPECT_EQ(chooser_.counts().records, 0U);
}

TEST_F(UnplannedStepsTest, ASequenceThatBeganByAnotherPlanIsRecorded) {
  step(1000, true);
  step(1000);
  EXPECT_EQ(spillway::step(chooser_, {100, 70}, 1000), (std::vector{true, false}));
  EXPECT_EQ(spillway::step(chooser_, {100, 70}, 1000), (std::vector{true, true}));
}

}  // namespace
}  // namespace spillway
