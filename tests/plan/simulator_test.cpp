// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/simulator.h"

#include "allocator/plan/bound.h"
#include "tests/plan/profiles.h"

#include <gtest/gtest.h>

namespace spillway {
namespace {

using namespace literals;
using test_steps::even_step;

/// Everything is offloaded. All fetches begin at event 4, in the order of the storages.
BudgetPlan all_fetched_from_event_4(const StepProfile& step) {
  BudgetPlan plan;
  plan.actions.assign(step.candidates.size(), Action::kOffload);
  plan.fetch.assign(step.candidates.size(), 4);
  plan.first_use = first_uses(step, plan.actions);
  return plan;
}

TEST(SimulatorTest, AnEvenStepTakesTheTimeComputedByHand) {
  // Three storages; all are copied at 50 bytes a second, two seconds each way.
  const StepProfile step = even_step(3, 1000, {50, 50, 0});
  const BudgetPlan plan = all_fetched_from_event_4(step);

  // Saved at 0, 1 and 2 seconds: their copies end at 2, 4 and 6. Without spare memory the event
  // that releases a storage waits until 2, 4 and 6. One second of compute follows each wait, so
  // the backward pass begins at 7. It uses storages 2, 1 and 0; the first use is at event 4.
  const StepTiming tight = simulate(step, plan, 1000_B);
  EXPECT_EQ(tight.compute, 7);
  EXPECT_EQ(tight.stall_out, 1 + 1 + 1);
  // Copies in begin at 7 and end at 9 (the order of the list), 11, 13: storage 0 is the first.
  EXPECT_GT(tight.stall_in, 0);
  EXPECT_EQ(tight.total(), 7 + tight.stall_out + tight.stall_in);

  const StepTiming wide = simulate(step, plan, 1300_B);
  EXPECT_EQ(wide.stall_out, 0);
}

TEST(SimulatorTest, AFetchWaitsForTheCopyOut) {
  // A copy out takes ten seconds per storage, a copy in a tenth; there is room for everything.
  const StepProfile step = even_step(3, 1000, {10, 1000, 0});
  const BudgetPlan plan = all_fetched_from_event_4(step);

  const StepTiming timing = simulate(step, plan, 2000_B);

  // The last copy out ends after 30 seconds, when four events would have ended. Its storage is used
  // first.
  EXPECT_EQ(timing.stall_out, 0);
  EXPECT_NEAR(timing.stall_in, 30 + 0.1 - 4, 1e-6);
}

TEST(BoundTest, TheLinkBoundsAnEvenStepAsComputedByHand) {
  // Ten storages of 100 bytes; 500 bytes must be offloaded at the forward-backward boundary. Each
  // copy takes five seconds.
  const StepProfile step = even_step(10, 1000, {20, 100, 0});

  const StepBound bound = lower_bound(step, 1500_B);

  // Out: 25 seconds since the first save, and one second for the event at the peak.
  EXPECT_EQ(bound.limit, StepBound::Limit::kLinkOut);
  EXPECT_DOUBLE_EQ(bound.seconds, 25 + 1 + 10);
  EXPECT_DOUBLE_EQ(lower_bound(step, 2000_B).seconds, 21);
}

TEST(BoundTest, CopiesInBoundTheStepToo) {
  const StepBound bound = lower_bound(even_step(10, 1000, {100, 20, 0}), 1500_B);

  // In: 500 bytes are offloaded at event 10, ten seconds after the step began. Their copies take 25
  // seconds, and a second follows the last use.
  EXPECT_EQ(bound.limit, StepBound::Limit::kLinkIn);
  EXPECT_DOUBLE_EQ(bound.seconds, 10 + 25 + 1);
}

TEST(BoundTest, AStorageWithoutRoomInTheBackwardPassIsOffloadedBefore) {
  // Everything is offloaded at the forward-backward boundary. There is room for 250 bytes, which
  // another allocation needs two events later.
  StepProfile step = even_step(4, 0, {20, 1e9, 0});
  step.memory.peaks[6] += 250;

  const StepBound bound = lower_bound(step, 250_B);

  // Two storages are copied out in ten seconds, and events 6 to 8 follow.
  EXPECT_NEAR(bound.seconds, 10 + 3, 1e-6);
  EXPECT_EQ(bound.limit, StepBound::Limit::kLinkOut);
}

TEST(BoundTest, RecomputationAfterAnEventCountsBesideCopiesOutBeforeIt) {
  StepProfile step = even_step(4, 0, {100, 1e9, 0});
  for (Candidate& storage : step.candidates)
    storage.recompute = 0.5;
  step.memory.peaks[6] += 400;

  const StepBound bound = lower_bound(step, 400_B);

  // Both storages that are offloaded at event 6 may be copied out in the six seconds before it.
  EXPECT_NEAR(bound.seconds, 9, 1e-6);
  step.link.out = 100.0 / 6;
  // Now one of them may.
  EXPECT_NEAR(lower_bound(step, 400_B).seconds, 9 + 0.5, 1e-6);
}

}  // namespace
}  // namespace spillway
