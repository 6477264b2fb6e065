// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/operands.h"

#include "allocator/plan/bound.h"
#include "allocator/plan/planner.h"
#include "tests/plan/gated_block.h"
#include "tests/plan/profiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace spillway {
namespace {

using namespace literals;
using test_steps::budgets_of;
using test_steps::gated_block;
using test_steps::random_actions;
using test_steps::random_step_with_operands;

constexpr std::uint64_t kOperandsSeed = 17;
constexpr std::size_t kNothing = StepCurve::Ask::kNoProduct;
constexpr std::size_t kAlways = Operand::kAlways;

/// Of four storages, of which the second and the last can be recomputed.
StepProfile profile_of(const StepCurve& curve) {
  StepProfile profile{RecordedStep(curve, 4)};
  profile.candidates[1].recompute = 0.1;
  profile.candidates[3].recompute = 0.1;
  profile.seconds.assign(profile.events(), 1);
  profile.link = {100, 100, 0};
  return profile;
}

StepProfile profile_of_gated_block() {
  return profile_of(gated_block());
}

TEST(OperandsTest, OperandsAreFoundWithAllTheirProducts) {
  const std::vector<Operand> operands = operands_of(gated_block());

  std::vector<std::vector<std::size_t>> rows;
  for (const Operand& each : operands) {
    for (const Operand::Product& product : each.products)
      rows.push_back({each.storage, each.from, each.to, product.storage, product.within});
    EXPECT_EQ(each.bytes, 100U);
  }
  const std::vector<std::vector<std::size_t>> expected = {
      {2, 7, 11, 3, kAlways},   // the other half, until the product's own backward pass wants it
      {1, 6, 10, 3, kAlways},   // the activation, until it is released
      {0, 10, 12, 1, kAlways},  // the gate, for the own use of the activation
      {0, 5, 10, 1, 1},         // and before, while that is there for the product
  };
  EXPECT_EQ(rows, expected);
}

TEST(OperandsTest, AnOffloadedProductNeedsNoOperands) {
  const StepProfile step = profile_of_gated_block();
  const std::vector<Action> again = {
      Action::kOffload, Action::kRecompute, Action::kOffload, Action::kRecompute};
  std::vector<Action> offloaded = again;
  offloaded[3] = Action::kOffload;

  const auto allocated_at = [&](const std::vector<Action>& actions, std::size_t event) {
    return allocated_bytes(step, actions)[step.memory.event_of(event)];
  };
  EXPECT_EQ(allocated_at(again, 8), 900U);
  EXPECT_EQ(allocated_at(offloaded, 8), 600U);
  // The other half is fetched for its own use, and the gate for the activation before that.
  EXPECT_EQ(allocated_at(offloaded, 10), 600U);
  EXPECT_EQ(allocated_at(offloaded, 11), 800U);
  const auto first_use = first_uses(step, offloaded);
  EXPECT_EQ(first_use[0], step.memory.event_of(10));
  EXPECT_EQ(first_use[1], step.memory.event_of(11));
  EXPECT_EQ(first_use[2], step.memory.event_of(11));
  EXPECT_EQ(first_uses(step, again)[0], step.memory.event_of(5));
}

TEST(OperandsTest, WithoutRoomForOperandsTheProductIsOffloaded) {
  const StepProfile step = profile_of_gated_block();

  EXPECT_EQ(least_peak(step), 700_B);
  const BudgetPlan with_room = plan_step(step, 900_B);
  const BudgetPlan with_less = plan_step(step, 850_B);
  const BudgetPlan with_least = plan_step(step, 700_B);

  EXPECT_NE(with_room.actions[3], Action::kOffload);
  EXPECT_EQ(with_less.actions[3], Action::kOffload);
  EXPECT_EQ(with_less.actions[1], Action::kRecompute);
  EXPECT_EQ(with_less.peak, 800_B);
  EXPECT_EQ(check_plan(step, with_less, 850_B), std::nullopt);
  EXPECT_EQ(with_least.actions[1], Action::kOffload);
  EXPECT_EQ(with_least.peak, 700_B);
}

TEST(OperandsTest, AnUnusedOperandIsPrefetchedAsEarlyAsThereIsRoom) {
  const StepProfile step = profile_of_gated_block();
  const std::vector<Action> offloaded(4, Action::kOffload);

  const BudgetPlan plan = plan_with(step, offloaded, 1000_B);

  // With the first use of the step, though its own is four events later.
  EXPECT_EQ(plan.fetch[2], step.memory.event_of(8));
  EXPECT_EQ(first_uses(step, offloaded)[2], step.memory.event_of(11));
}

/// The gate is used for its activation only, and is released before the own use of that.
StepProfile profile_of_released_gate() {
  StepCurve curve;
  curve.allocated = std::vector<std::uint64_t>(15, 500);
  curve.absences = {{0, 1, 5, 100},
                    {1, 2, 6, 100},
                    {2, 3, 7, 100},
                    {0, 7, 15, 100},
                    {3, 4, 8, 100},
                    {3, 9, 15, 100},
                    {1, 12, 15, 100},
                    {2, 13, 15, 100}};
  curve.asks = {
      {0, 5, 1}, {1, 6, 3}, {2, 7, 3}, {3, 8, kNothing}, {1, 11, kNothing}, {2, 11, kNothing}};
  return profile_of(curve);
}

TEST(OperandsTest, ALaterRecomputationUsesItsOperandsThen) {
  StepProfile step = profile_of_released_gate();
  const std::vector<Action> offloaded = {
      Action::kOffload, Action::kRecompute, Action::kOffload, Action::kOffload};
  std::vector<Action> all = offloaded;
  all[1] = Action::kOffload;
  const std::size_t later = step.memory.event_of(11);

  EXPECT_EQ(first_uses(step, offloaded)[0], later);
  EXPECT_EQ(first_uses(step, all)[0], step.events());  // nothing uses it
  // It is prefetched as early as there is room, and is resident from then on.
  const BudgetPlan with_room = plan_with(step, offloaded, 10000_B);
  EXPECT_EQ(with_room.fetch[0], step.memory.event_of(8));
  EXPECT_EQ(allocated_bytes(step, offloaded, with_room.fetch)[later - 1],
            allocated_bytes(step, offloaded)[later - 1] + 200);  // the other half, too
  EXPECT_EQ(check_plan(step, with_room, 10000_B), std::nullopt);
  // Without room, the recomputation waits for it.
  step.memory.peaks[later - 1] = 700;
  const BudgetPlan without = plan_with(step, offloaded, 500_B);
  EXPECT_EQ(without.fetch[0], later);
  EXPECT_GE(without.timing.stall_in, step.link.in_seconds(100));
}

TEST(OperandsTest, ALaterRecomputationHasRoomForItsTemporaryMemory) {
  StepProfile step = profile_of_gated_block();
  step.memory.besides = {0, 70, 0, 0};
  const std::vector<Action> again = {
      Action::kOffload, Action::kRecompute, Action::kOffload, Action::kRecompute};
  std::vector<Action> offloaded = again;
  offloaded[3] = Action::kOffload;

  const std::size_t later = step.memory.event_of(11);
  EXPECT_EQ(allocated_bytes(step, again)[later], 800U);
  EXPECT_EQ(allocated_bytes(step, offloaded)[later], 870U);
  EXPECT_EQ(plan_with(step, offloaded, 0_B).peak, 870_B);
  // So offloading it instead does not fit each budget: then the other one is not computed later.
  const BudgetPlan plan = plan_step(step, 850_B);
  EXPECT_LE(plan.peak, 850_B);
  EXPECT_NE(plan.actions[1], Action::kRecompute);
}

TEST(OperandsTest, AnExpensiveStorageStaysIfOffloadingItLeavesNoRoomForRecomputation) {
  StepProfile step = profile_of_gated_block();
  step.memory.peaks[step.memory.event_of(4)] = 850;  // nothing can be kept
  step.link = {1000, 1000, 0};
  step.candidates[1].recompute = 0.001;
  step.candidates[3].recompute = 0.9;
  step.memory.besides = {0, 200, 0, 0};

  const BudgetPlan plan = plan_step(step, 900_B);

  EXPECT_EQ(plan.actions[3], Action::kRecompute);
  EXPECT_EQ(plan.peak, 900_B);
  step.memory.besides[1] = 0;
  EXPECT_EQ(plan_step(step, 900_B).actions[3], Action::kOffload);
}

TEST(OperandsTest, WithoutALimitEverythingIsResident) {
  const StepProfile step = profile_of_gated_block();

  EXPECT_EQ(plan_step(step, Bytes{~0ULL}).actions, std::vector(4, Action::kKeep));
  const BudgetPlan offloaded = plan_with(step, std::vector(4, Action::kOffload), Bytes{~0ULL});
  EXPECT_EQ(offloaded.fetch[2], step.memory.event_of(8));
}

TEST(OperandsTest, APlanOfGivenActionsReportsTheSmallestPossiblePeak) {
  const StepProfile step = profile_of_gated_block();

  EXPECT_EQ(plan_with(step, std::vector(4, Action::kKeep), 700_B).least, 700_B);
}

TEST(OperandsTest, AnEventBeginsAtTheOwnUseOfAnOperand) {
  StepCurve curve;
  curve.allocated = {500, 300, 400, 500, 900, 500};
  curve.absences = {{0, 1, 2, 100}, {1, 1, 3, 100}};
  curve.asks = {{0, 2, 1}, {1, 3, kNothing}, {0, 5, kNothing}};

  const RecordedStep step(curve, 2);

  ASSERT_EQ(step.operands.size(), 1U);
  EXPECT_EQ(step.edges.at(step.operands[0].to), 5U);
}

TEST(OperandsTest, AFetchForProductsAfterAnotherEventIsNoOperand) {
  StepCurve curve = gated_block();
  ++curve.asks[2].event;

  for (const Operand& each : operands_of(curve))
    EXPECT_NE(each.storage, 2U);
}

TEST(OperandsTest, AUseForAnUnknownProductIsNoOperand) {
  StepCurve curve = gated_block();
  for (StepCurve::Ask& ask : curve.asks)
    if (ask.storage == 2) ask.product = 7;  // of which nothing is known

  for (const Operand& each : operands_of(curve))
    EXPECT_NE(each.storage, 2U);
}

TEST(OperandsTest, AUseWhileOffloadedOrNeverOffloadedIsNoOperand) {
  StepCurve curve = gated_block();
  const std::size_t before = operands_of(curve).size();
  curve.asks.push_back({9, 12, 1});

  EXPECT_EQ(operands_of(curve).size(), before);
}

TEST(OperandsTest, IfMemoryIsFreedLateNothingIsOffloadedInstead) {
  StepProfile step = profile_of_gated_block();
  step.free_at_once = false;

  EXPECT_EQ(least_peak(step), 900_B);
  EXPECT_NE(plan_step(step, 850_B).actions[3], Action::kOffload);
}

TEST(OperandsTest, PlansOfRandomStepsAreSoundMeetTheBudgetAndNeverBeatTheBound) {
  std::mt19937_64 random(kOperandsSeed);
  bool moved_instead = false;
  for (int trial = 0; trial < 100; ++trial) {
    const StepProfile step = random_step_with_operands(random, 4 + random() % 40);
    std::vector<Action> again;
    for (const Candidate& storage : step.candidates)
      again.push_back(storage.recompute ? Action::kRecompute : Action::kOffload);
    const Bytes computed = plan_with(step, again, Bytes{}).peak;
    for (const Bytes budget : budgets_of(step, 8)) {
      const BudgetPlan plan = plan_step(step, budget);
      ASSERT_EQ(check_plan(step, plan, budget), std::nullopt) << "trial " << trial;
      ASSERT_LE(plan.peak, budget) << "trial " << trial;
      ASSERT_GE(plan.timing.total() * (1 + 1e-9), lower_bound(step, budget).seconds)
          << "trial " << trial;
      moved_instead = moved_instead || budget < computed;
    }
  }
  EXPECT_TRUE(moved_instead);
}

TEST(OperandsTest, RandomActionsNeedThePredictedPeakAndNeverBeatTheBound) {
  std::mt19937_64 random(kOperandsSeed);
  for (int trial = 0; trial < 200; ++trial) {
    const StepProfile step = random_step_with_operands(random, 4 + random() % 20);
    const std::vector<Action> actions = random_actions(random, step);
    BudgetPlan plan = plan_with(step, actions, Bytes{});
    const auto allocated = allocated_bytes(step, plan.actions, plan.fetch);
    ASSERT_EQ(plan.peak.count(), *std::max_element(allocated.begin(), allocated.end()))
        << "trial " << trial;
    ASSERT_GE(plan.peak, least_peak(step)) << "trial " << trial;
    const double bound = lower_bound(step, plan.peak).seconds;
    plan = plan_with(step, actions, plan.peak);
    ASSERT_EQ(check_plan(step, plan, plan.peak), std::nullopt) << "trial " << trial;
    ASSERT_GE(plan.timing.total() * (1 + 1e-9), bound) << "trial " << trial;
  }
}

TEST(OperandsTest, NoPlanBeatsTheBoundIfOperandsAreReleasedEarlyOrHaveNoOwnUse) {
  std::mt19937_64 random(kOperandsSeed);
  for (int trial = 0; trial < 300; ++trial) {
    const StepProfile step =
        random_step_with_operands(random, 4 + random() % 12, ~std::size_t{0}, true);
    const std::vector<Action> actions = random_actions(random, step);
    const Bytes needed = plan_with(step, actions, Bytes{}).peak;
    for (const BudgetPlan& plan : {plan_with(step, actions, needed), plan_step(step, needed)}) {
      ASSERT_EQ(check_plan(step, plan, needed), std::nullopt) << "trial " << trial;
      const double bound = lower_bound(step, needed).seconds;
      ASSERT_GE(plan.timing.total() * (1 + 1e-9), bound) << "trial " << trial;
    }
  }
}

/// Storage 1 is recomputed, in 1000 seconds, from 0, which is fetched at event 4 for that and
/// is used by itself at 6, or never.
StepProfile one_operand(bool used) {
  StepCurve curve;
  curve.allocated = {700, 600, 500, 500, 900, used ? 1000U : 900U, 700, 600, 500};
  curve.absences = {{0, 1, 4, 100}, {1, 2, 5, 100}, {1, 7, 9, 100}};
  curve.asks = {{0, 4, 1}, {1, 5, kNothing}};
  if (used) curve.asks.push_back({0, 6, kNothing});
  curve.absences.push_back({0, used ? 8U : 6U, 9, 100});
  StepProfile profile{RecordedStep(curve, 2)};
  profile.candidates[1].recompute = 1000;
  profile.seconds.assign(profile.events(), 1);
  profile.link = {1, 1, 0};
  return profile;
}

TEST(OperandsTest, TheBoundCountsNoOffloadOfARecomputableOperand) {
  StepProfile step = one_operand(true);
  step.candidates[0].recompute = 0;

  const BudgetPlan plan = plan_with(step, {Action::kRecompute, Action::kKeep}, 900_B);

  ASSERT_EQ(plan.peak, 900_B);
  EXPECT_LE(lower_bound(step, 900_B).seconds, plan.timing.total());
}

TEST(OperandsTest, TheBoundCountsNoFetchOfAStorageUsedOnlyAsOperand) {
  StepProfile step = one_operand(false);
  step.link.out = 1e6;

  const BudgetPlan plan = plan_with(step, {Action::kOffload, Action::kOffload}, 800_B);

  ASSERT_EQ(plan.peak, 800_B);
  EXPECT_LE(lower_bound(step, 800_B).seconds, plan.timing.total());
}

TEST(OperandsTest, AStepThatRanOutOfMemoryMissesTheOperandsNotYetFetched) {
  StepCurve curve = gated_block();
  curve.allocated.resize(8);  // it ended where storage 3 was to be computed
  curve.asks.resize(3);
  curve.absences = {{0, 1, 5, 100}, {1, 2, 6, 100}, {2, 3, 7, 100}, {3, 4, 8, 100}};
  EXPECT_EQ(needed_so_far(curve), 500_B);

  curve.asks.push_back({2, 7, kNothing});
  EXPECT_EQ(needed_so_far(curve), 600_B);
  curve.absences.push_back({0, 7, 8, 100});  // one of them is freed already
  EXPECT_EQ(needed_so_far(curve), 700_B);
}

}  // namespace
}  // namespace spillway
