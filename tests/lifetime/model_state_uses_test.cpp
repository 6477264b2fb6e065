// SPDX-License-Identifier: Apache-2.0
// When a step has used which storage of the model state.
#include "allocator/lifetime/allocation_curve.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>

namespace spillway {
namespace {

using namespace literals;

class ModelStateUsesTest : public testing::Test {
 protected:
  ModelStateUsesTest() { curve_.begin(1, 100_B); }

  /// An operator uses it, and others make that many events afterwards.
  void use(std::uint64_t storage, std::size_t events_after, bool written = false) {
    curve_.model_state_used(storage, 30_B, written);
    curve_.born(1_B);  // its result
    curve_.model_state_idle(storage);
    for (std::size_t event = 0; event < events_after; ++event)
      curve_.born(1_B);
  }

  AllocationCurve curve_;
};

TEST_F(ModelStateUsesTest, TheFirstTheLastAndTheLongestTimeBetweenUsesAreKnown) {
  curve_.born(1_B);
  use(5, 2);  // event 2
  use(5, 7);  // event 5
  use(5, 3);  // event 13
  const StepCurve step = curve_.end();

  ASSERT_EQ(step.model_state_uses.size(), 1U);
  const StepCurve::ModelStateUses& uses = step.model_state_uses.front();
  EXPECT_EQ(uses.storage, 5U);
  EXPECT_EQ(uses.bytes, 30U);
  EXPECT_EQ(uses.first, 2U);
  EXPECT_EQ(uses.before, 2U);
  EXPECT_EQ(uses.from, 6U);
  EXPECT_EQ(uses.to, 13U);
  EXPECT_EQ(uses.last, 14U);
  EXPECT_FALSE(uses.written);
}

TEST_F(ModelStateUsesTest, WhatIsUsedOnceIsIdleBeforeAndAfter) {
  use(8, 4, /*written=*/true);
  const StepCurve step = curve_.end();

  ASSERT_EQ(step.model_state_uses.size(), 1U);
  const StepCurve::ModelStateUses& uses = step.model_state_uses.front();
  EXPECT_EQ(uses.from, uses.to);
  EXPECT_EQ(uses.first, 1U);
  EXPECT_EQ(uses.last, 2U);
  EXPECT_TRUE(uses.written);
}

TEST_F(ModelStateUsesTest, AUseThatDoesNotEndLastsUntilTheStepEnds) {
  curve_.model_state_used(3, 30_B, false);
  curve_.born(1_B);
  const StepCurve step = curve_.end();

  ASSERT_EQ(step.model_state_uses.size(), 1U);
  EXPECT_EQ(step.model_state_uses.front().last, step.allocated.size());
}

TEST_F(ModelStateUsesTest, OverlappingUsesAreNoTimeBetweenUses) {
  curve_.model_state_used(3, 30_B, false);
  curve_.born(1_B);
  curve_.model_state_used(3, 30_B, false);
  curve_.born(1_B);
  curve_.model_state_idle(3);
  const StepCurve step = curve_.end();

  ASSERT_EQ(step.model_state_uses.size(), 1U);
  EXPECT_EQ(step.model_state_uses.front().from, step.model_state_uses.front().to);
}

TEST_F(ModelStateUsesTest, OnlyPassesCount) {
  use(1, 1);
  curve_.begin_optimizer_phase();
  use(1, 1);
  use(2, 1);
  EXPECT_EQ(curve_.end().model_state_uses.size(), 1U);

  use(1, 1);  // no step is running
  curve_.begin(2, 100_B);
  EXPECT_TRUE(curve_.end().model_state_uses.empty());
}

TEST_F(ModelStateUsesTest, StoragesAreInTheOrderOfTheirFirstUses) {
  use(9, 1);
  use(2, 1);
  use(9, 1);
  const StepCurve step = curve_.end();
  ASSERT_EQ(step.model_state_uses.size(), 2U);
  EXPECT_EQ(step.model_state_uses[0].storage, 9U);
  EXPECT_EQ(step.model_state_uses[1].storage, 2U);
}

}  // namespace
}  // namespace spillway
