// SPDX-License-Identifier: Apache-2.0
#include "allocator/device/step_phase.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

constexpr StepPhase kPhases[] = {
    StepPhase::kForward, StepPhase::kBackward, StepPhase::kOptimizer, StepPhase::kOutside};

TEST(StepPhaseTest, OneMicroBatchGoesThroughItsPhasesInOrder) {
  StepPhase phase = StepPhase::kOutside;
  for (const StepEvent event : {StepEvent::kSaved, StepEvent::kSaved})
    phase = transition(phase, event);
  EXPECT_EQ(phase, StepPhase::kForward);
  phase = transition(phase, StepEvent::kUnpacked);
  EXPECT_EQ(phase, StepPhase::kBackward);
  phase = transition(phase, StepEvent::kEnded);
  EXPECT_EQ(phase, StepPhase::kOptimizer);
  EXPECT_EQ(transition(phase, StepEvent::kSaved), StepPhase::kForward);  // another micro-batch
  EXPECT_EQ(transition(phase, StepEvent::kStepped), StepPhase::kOutside);
}

TEST(StepPhaseTest, WhatARecomputationSavesLeavesTheBackwardPass) {
  EXPECT_EQ(transition(StepPhase::kBackward, StepEvent::kSaved), StepPhase::kBackward);
}

TEST(StepPhaseTest, AStepWithoutABackwardPassHasNoOptimizerPhase) {
  EXPECT_EQ(transition(StepPhase::kForward, StepEvent::kEnded), StepPhase::kOutside);
}

TEST(StepPhaseTest, AfterItsEndNoPhaseHasSavedTensors) {
  for (const StepPhase phase : kPhases) {
    EXPECT_FALSE(has_saved(transition(phase, StepEvent::kEnded)));
    EXPECT_FALSE(has_saved(transition(phase, StepEvent::kStepped)));
    EXPECT_TRUE(has_saved(transition(phase, StepEvent::kSaved)));
    EXPECT_TRUE(has_saved(transition(phase, StepEvent::kUnpacked)));
  }
}

}  // namespace
}  // namespace spillway
