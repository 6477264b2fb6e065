// SPDX-License-Identifier: Apache-2.0
#include "allocator/lifetime/allocation_curve.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

using namespace literals;
using Levels = std::vector<std::uint64_t>;

TEST(AllocationCurveTest, TheRecentPeakIsThatSinceTheLastCall) {
  AllocationCurve curve;
  curve.begin(7, 100_B);
  curve.set_model_state(30_B);
  curve.born(50_B);
  curve.died(1, 20_B);

  EXPECT_EQ(curve.take_recent_peak(), 150_B);
  EXPECT_EQ(curve.take_recent_peak(), 0_B);
  curve.died(2, 80_B);
  EXPECT_EQ(curve.take_recent_peak(), 50_B);
  // Of these 40, a gradient.
  curve.born(40_B);
  curve.became_model_state(3, 40_B);
  static_cast<void>(curve.take_recent_peak());
  curve.born(10_B);
  EXPECT_EQ(curve.take_recent_peak(), 60_B);
}

TEST(AllocationCurveTest, TheCurveHasTheAllocatedBytesAfterEachEvent) {
  AllocationCurve curve;
  curve.begin(7, 100_B);
  curve.born(50_B);
  curve.died(1, 20_B);

  const StepCurve step = curve.end();

  EXPECT_EQ(step.allocated, (Levels{100, 150, 130}));
  EXPECT_EQ(step.peak(), 150_B);
  EXPECT_FALSE(curve.on());
}

TEST(AllocationCurveTest, AStorageIsOffloadedFromItsFreeUntilItIsPresentAgain) {
  AllocationCurve curve;
  curve.begin(7, 100_B);
  curve.watch(7, 0x1000, 3, 8_B);
  curve.died(0x1000, 40_B);
  curve.born(5_B);
  curve.born(40_B);
  curve.present(7, 3);

  const StepCurve step = curve.end();

  ASSERT_EQ(step.absences.size(), 1U);
  EXPECT_EQ(step.absences[0].storage, 3U);
  EXPECT_EQ(step.absences[0].from, 1U);
  EXPECT_EQ(step.absences[0].to, 3U);
  EXPECT_EQ(step.absences[0].bytes, 40U);
}

TEST(AllocationCurveTest, APartialFetchLeavesTheRestOffloaded) {
  AllocationCurve curve;
  curve.begin(7, 100_B);
  curve.watch(7, 0x1000, 3, 8_B);
  curve.died(0x1000, 40_B);
  curve.born(15_B);
  curve.present(7, 3, 25_B);
  curve.watch(7, 0x2000, 3, 8_B);
  curve.died(0x2000, 15_B);
  curve.born(5_B);
  curve.present(7, 3);

  const StepCurve step = curve.end();

  std::vector<Levels> absences;
  for (const StepCurve::Absence& offloaded : step.absences)
    absences.push_back({offloaded.from, offloaded.to, offloaded.bytes});
  EXPECT_EQ(absences, (std::vector<Levels>{{1, 2, 40}, {2, 3, 25}, {3, 4, 40}}));
}

TEST(AllocationCurveTest, AStorageNeverFetchedIsOffloadedUntilTheEnd) {
  AllocationCurve curve;
  curve.begin(7, 100_B);
  curve.watch(7, 0x1000, 0, 8_B);
  curve.died(0x1000, 40_B);

  const StepCurve step = curve.end();

  ASSERT_EQ(step.absences.size(), 1U);
  EXPECT_EQ(step.absences[0].to, step.allocated.size());
}

TEST(AllocationCurveTest, AStorageThatHasEndedIsNotOffloadedAnyMore) {
  AllocationCurve curve;
  curve.begin(7, 100_B);
  curve.watch(7, 0x1000, 0, 8_B);
  curve.watch(7, 0x2000, 1, 8_B);
  curve.died(0x2000, 20_B);
  curve.ended(7, 0);  // as compiled graphs do: the handle ends before the tensor
  curve.ended(7, 1);
  curve.died(0x1000, 40_B);
  curve.born(5_B);

  const StepCurve step = curve.end();

  ASSERT_EQ(step.absences.size(), 1U);
  EXPECT_EQ(step.absences[0].storage, 1U);
  EXPECT_EQ(step.absences[0].from, 1U);
  EXPECT_EQ(step.absences[0].to, 1U);
}

TEST(AllocationCurveTest, ReportsOnAnotherStepAreIgnored) {
  AllocationCurve curve;
  curve.begin(7, 100_B);
  curve.watch(6, 0x1000, 0, 8_B);
  curve.died(0x1000, 40_B);

  EXPECT_TRUE(curve.end().absences.empty());
}

TEST(AllocationCurveTest, UsesAreReportedWithTheirEventAndProduct) {
  AllocationCurve curve;
  curve.begin(7, 100_B);
  curve.born(50_B);
  curve.asked(7, 3, 4);
  curve.asked(6, 5, 4);  // of another step
  curve.born(50_B);
  curve.asked(7, 4, StepCurve::Ask::kNoProduct);

  std::vector<Levels> asks;
  for (const StepCurve::Ask& ask : curve.end().asks)
    asks.push_back({ask.storage, ask.event, ask.product});
  EXPECT_EQ(asks, (std::vector<Levels>{{3, 1, 4}, {4, 2, StepCurve::Ask::kNoProduct}}));
}

TEST(AllocationCurveTest, AStepSoFarIsReportedAsIfItEndedAndContinues) {
  AllocationCurve curve;
  EXPECT_TRUE(curve.so_far().allocated.empty());
  curve.begin(7, 100_B);
  curve.watch(7, 0x1000, 3, 8_B);
  curve.died(0x1000, 40_B);

  const StepCurve so_far = curve.so_far();
  curve.born(40_B);
  curve.present(7, 3);
  const StepCurve whole = curve.end();

  EXPECT_EQ(so_far.allocated, (Levels{100, 60}));
  EXPECT_EQ(so_far.optimizer_begin, 2u);
  ASSERT_EQ(so_far.absences.size(), 1u);
  EXPECT_EQ(so_far.absences[0].to, 2u);
  EXPECT_EQ(whole.allocated, (Levels{100, 60, 100}));
  EXPECT_EQ(whole.absences.size(), 1u);
  EXPECT_TRUE(curve.so_far().allocated.empty());
}

TEST(AllocationCurveTest, EventsAfterTheBackwardPassCountOnlyInTheOptimizerPhase) {
  for (const bool optimized : {true, false}) {
    AllocationCurve curve;
    curve.begin(7, 100_B);
    curve.watch(7, 0x1000, 0, 8_B);
    curve.died(0x1000, 40_B);
    EXPECT_FALSE(curve.in_optimizer_phase());
    curve.begin_optimizer_phase();
    curve.born(900_B);
    EXPECT_TRUE(curve.in_optimizer_phase());

    const StepCurve step = curve.end(optimized);

    EXPECT_EQ(step.allocated, optimized ? (Levels{100, 60, 960}) : (Levels{100, 60}));
    EXPECT_EQ(step.absences.front().to, step.allocated.size());
    EXPECT_EQ(step.optimizer_phase_peak(), optimized ? 960_B : 0_B);
  }
}

TEST(AllocationCurveTest, AnAllocatorMayCorrectTheLastLevel) {
  AllocationCurve curve;
  curve.begin(7, 100_B);
  curve.born(50_B);
  curve.settle(170_B);
  curve.born(1_B);

  EXPECT_EQ(curve.end().allocated, (Levels{100, 170, 171}));
}

TEST(AllocationCurveTest, TemporaryMemoryOfARecomputationIsCountedSeparately) {
  AllocationCurve curve;
  curve.begin(7, 100_B);
  const std::size_t since = curve.event();
  curve.born(30_B);  // on the way
  curve.born(50_B);  // the result
  curve.died(1, 30_B);
  curve.computed(7, 2, since);
  curve.computed(6, 4, since);  // of another step
  curve.computed(7, 2, curve.event());

  EXPECT_EQ(curve.end().besides, (Levels{0, 0, 30}));
}

TEST(AllocationCurveTest, ItHasTheSavedBytesOnTheDeviceAtThePeak) {
  AllocationCurve curve;
  curve.begin(7, 100_B);
  curve.born(30_B);
  curve.watch(7, 0x1000, 0, 30_B);
  curve.born(50_B);
  curve.watch(7, 0x2000, 1, 50_B);
  const Bytes both = curve.so_far().saved_at_peak();
  curve.died(0x1000, 30_B);
  curve.born(70_B);  // the peak, with one of them
  curve.died(0x2000, 50_B);
  curve.saved(7, 0x3000, 60_B);

  EXPECT_EQ(both, 80_B);
  EXPECT_EQ(curve.end().saved_at_peak(), 50_B);
}

TEST(AllocationCurveTest, ModelStateCountsInThePeakOnly) {
  AllocationCurve curve;
  curve.set_model_state(30_B);
  curve.begin(7, 100_B);
  curve.born(50_B);
  curve.set_model_state(10_B);  // makes room
  curve.born(5_B);
  curve.set_model_state(90_B);
  curve.set_model_state(10_B);
  curve.begin_optimizer_phase();
  curve.died(1, 100_B);
  curve.set_model_state(120_B);

  const StepCurve step = curve.end();

  EXPECT_EQ(step.allocated, (Levels{100, 150, 155, 55}));
  EXPECT_EQ(step.model_state, (std::vector<std::int64_t>{30, 30, 90, 120}));
  EXPECT_EQ(step.at_begin(), 130_B);
  EXPECT_EQ(step.peak(), 245_B);
  EXPECT_EQ(step.model_state_at_peak(), 90_B);
  EXPECT_EQ(step.optimizer_phase_peak(), 175_B);
}

TEST(AllocationCurveTest, WhatBecomesModelStateInAStepIsPartOfItUntilItLeaves) {
  AllocationCurve curve;
  curve.set_model_state(10_B);
  curve.begin(7, 100_B);
  curve.born(50_B);
  curve.became_model_state(0x1000, 50_B);  // a gradient
  curve.set_model_state(60_B);
  curve.born(5_B);
  curve.model_state_died(0x1000);  // it leaves
  curve.set_model_state(10_B);
  curve.model_state_died(0x2000);  // so does what was there before
  curve.set_model_state(0_B);
  curve.born(5_B);

  const StepCurve step = curve.end();

  EXPECT_EQ(step.allocated, (Levels{100, 150, 155, 105, 110}));
  EXPECT_EQ(step.model_state, (std::vector<std::int64_t>{10, 10, 10, 10, 0}));
  EXPECT_EQ(step.peak(), 165_B);

  curve.begin(8, 100_B);
  EXPECT_EQ(curve.peak(), 100_B);
}

}  // namespace
}  // namespace spillway
