// SPDX-License-Identifier: Apache-2.0
#include "allocator/step/cannot_help.h"

#include "allocator/base/bytes.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace spillway {
namespace {

using namespace literals;

/// What a step allocates in one phase, beside what was allocated before.
struct Allocated {
  StepPhase phase;
  Bytes allocated;
  Bytes offloaded{};
};

StepFacts step_of(const std::vector<Allocated>& all) {
  StepPeaks peaks;
  for (const Allocated& each : all) {
    peaks.begin(each.phase);
    EXPECT_TRUE(peaks.on());
    peaks.allocated(1_MiB, each.allocated, each.offloaded);
  }
  StepFacts step;
  step.peaks = peaks.end_step();
  step.offloaded = 40_MiB;
  return step;
}

HelplessReason reason_of(const StepFacts& step) {
  const auto why = why_peak_is_not_lowered(DeviceId{0}, step);
  return why ? why->reason : HelplessReason::kNone;
}

TEST(StepPeaksTest, StaysOffUntilATensorIsSaved) {
  StepPeaks peaks;
  peaks.end_step();
  EXPECT_FALSE(peaks.on());
  peaks.begin(StepPhase::kForward);
  EXPECT_TRUE(peaks.on());
  peaks.end_step();
  EXPECT_TRUE(peaks.on());
}

TEST(CannotHelpTest, APeakOutsideOfWhatSavesIsTheOptimizersOrAnEvaluations) {
  const Allocated forward{StepPhase::kForward, 20_MiB, 40_MiB};
  EXPECT_EQ(reason_of(step_of({forward, {StepPhase::kOptimizer, 60_MiB}})),
            HelplessReason::kOptimizer);
  EXPECT_EQ(reason_of(step_of({{StepPhase::kOutside, 60_MiB}, forward})),
            HelplessReason::kEvaluation);
}

TEST(CannotHelpTest, APeakThatWouldBeHigherWithoutOffloadingHasNoReason) {
  const Allocated forward{StepPhase::kForward, 20_MiB, 40_MiB};
  EXPECT_EQ(reason_of(step_of({forward, {StepPhase::kOptimizer, 59_MiB}})), HelplessReason::kNone);
  EXPECT_EQ(reason_of(step_of({forward, {StepPhase::kBackward, 50_MiB, 5_MiB}})),
            HelplessReason::kNone);
}

TEST(CannotHelpTest, WithoutOffloadingThereIsNoReason) {
  StepFacts step = step_of({{StepPhase::kForward, 20_MiB}, {StepPhase::kOptimizer, 60_MiB}});
  step.offloaded = Bytes{};
  EXPECT_EQ(reason_of(step), HelplessReason::kNone);
}

TEST(CannotHelpTest, OfAnotherAllocatorsMemoryNothingIsKnown) {
  EXPECT_EQ(reason_of(step_of({})), HelplessReason::kNone);
}

TEST(CannotHelpTest, WhatIsLeftToRecomputeWouldHaveBeenAllocated) {
  StepFacts step = step_of({{StepPhase::kForward, 20_MiB}, {StepPhase::kOptimizer, 60_MiB}});
  EXPECT_EQ(reason_of(step), HelplessReason::kOptimizer);
  step.left_to_recompute = 41_MiB;
  EXPECT_EQ(reason_of(step), HelplessReason::kNone);
}

TEST(CannotHelpTest, APeakInsideAPassIsAnOperatorsACompiledGraphsOrOfOtherHooks) {
  StepFacts step = step_of({{StepPhase::kForward, 100_MiB, 1_MiB}});
  EXPECT_EQ(reason_of(step), HelplessReason::kOperator);
  step.compiled = true;
  EXPECT_EQ(reason_of(step), HelplessReason::kCompiledGraph);
  step.saved_elsewhere = true;
  EXPECT_EQ(reason_of(step), HelplessReason::kOtherOffloader);
}

TEST(CannotHelpTest, BetweenMicroBatchesThereIsNoOptimizer) {
  const StepFacts step = step_of({{StepPhase::kForward, 20_MiB, 40_MiB},
                                  {StepPhase::kOptimizer, 70_MiB},
                                  {StepPhase::kForward, 20_MiB, 40_MiB}});
  EXPECT_EQ(reason_of(step), HelplessReason::kEvaluation);
}

TEST(CannotHelpTest, AForwardPassWithoutABackwardPassIsOutsideOfTheStep) {
  StepPeaks peaks;
  peaks.begin(StepPhase::kForward);
  peaks.allocated(1_MiB, 70_MiB, Bytes{});
  peaks.abandon();
  const StepPeaks::Peaks all = peaks.end_step();
  EXPECT_EQ(all.at(static_cast<std::size_t>(StepPhase::kOutside)).allocated, 70_MiB);
  EXPECT_EQ(all.at(static_cast<std::size_t>(StepPhase::kForward)).allocated, Bytes{});
}

TEST(CannotHelpTest, LaterStepsAreFollowedNowAndThenAndWhatComesBetweenThemAlways) {
  StepPeaks peaks;
  int followed = 0;
  for (int step = 0; step < 64; ++step) {
    peaks.begin(StepPhase::kForward);
    followed += peaks.on() ? 1 : 0;
    peaks.end_step();
    EXPECT_TRUE(peaks.on());
  }
  EXPECT_GT(followed, 8);
  EXPECT_LT(followed, 32);
}

TEST(CannotHelpTest, AnAnswerNeedsThreeStepsInARowWithOneReason) {
  const CannotHelp optimizer{HelplessReason::kOptimizer, DeviceId{0}, 1_MiB};
  HelplessSteps steps;
  EXPECT_EQ(steps.after(optimizer).reason, HelplessReason::kNone);
  EXPECT_EQ(steps.after(optimizer).reason, HelplessReason::kNone);
  EXPECT_EQ(steps.after(optimizer).reason, HelplessReason::kOptimizer);
  EXPECT_EQ(steps.after(std::nullopt).reason, HelplessReason::kNone);
  EXPECT_EQ(steps.after(optimizer).reason, HelplessReason::kNone);
}

TEST(CannotHelpTest, EveryReasonHasANameOfItsOwn) {
  std::set<std::string> names;
  for (std::uint32_t reason = 0; reason < static_cast<std::uint32_t>(HelplessReason::kCount);
       ++reason)
    names.emplace(helpless_reason_name(static_cast<HelplessReason>(reason)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(HelplessReason::kCount));
}

TEST(CannotHelpTest, AnAnswerThatIsWithdrawnIsFetchedAfterFourTimesAsManySteps) {
  const std::optional<CannotHelp> found =
      CannotHelp{HelplessReason::kOptimizer, DeviceId{0}, 1_MiB};
  HelplessSteps steps;
  const auto steps_to_answer = [&] {
    int count = 1;
    while (steps.after(found).reason == HelplessReason::kNone)
      ++count;
    return count;
  };
  const int first = steps_to_answer();
  steps.withdraw();
  EXPECT_EQ(steps_to_answer(), 4 * first);
}

StepPeaks::Peaks peaks_of(StepPhase phase, Bytes highest) {
  StepPeaks::Peaks peaks{};
  for (StepPeaks::Peak& each : peaks)
    each.allocated = 10_MiB;
  peaks.at(static_cast<std::size_t>(phase)).allocated = highest;
  return peaks;
}

TEST(CannotHelpTest, AJobNeedsNoOffloadingWhileItsPeakStaysAboutThatInItsPlace) {
  const auto needs_none = [](StepPhase phase, Bytes peak) {
    return needs_no_offloading(HelplessReason::kOptimizer, 64_MiB, peaks_of(phase, peak));
  };
  EXPECT_TRUE(needs_none(StepPhase::kOptimizer, 64_MiB));
  EXPECT_TRUE(needs_none(StepPhase::kOptimizer, 66_MiB));
  EXPECT_FALSE(needs_none(StepPhase::kOptimizer, 80_MiB));
  EXPECT_FALSE(needs_none(StepPhase::kOptimizer, 50_MiB));
  EXPECT_FALSE(needs_none(StepPhase::kForward, 64_MiB));
}

TEST(CannotHelpTest, RecentPeaksForgetWhatHappenedLongAgo) {
  StepPeaks peaks;
  peaks.end_step();
  peaks.follow_all(true);
  const auto step = [&](Bytes allocated) {
    peaks.begin(StepPhase::kForward);
    peaks.allocated(1_MiB, allocated, 0_B);
    peaks.end_step();
  };
  step(100_MiB);
  EXPECT_EQ(highest(peaks.recent()).allocated, 100_MiB);

  for (int steps = 0; steps < 100; ++steps)
    step(10_MiB);

  EXPECT_EQ(highest(peaks.recent()).allocated, 10_MiB);
}

}  // namespace
}  // namespace spillway
