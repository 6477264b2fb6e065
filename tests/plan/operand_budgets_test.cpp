// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/budget_chooser.h"
#include "tests/plan/gated_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

namespace spillway {
namespace {

using namespace literals;
using test_steps::gated_block;

/// Offers the storages of a gated block, the first one of this many bytes.
std::vector<Action> offer(BudgetChooser& chooser, Bytes first = 100_B, Bytes allocated = 500_B) {
  return {chooser.choose(first, allocated),
          chooser.choose(100_B, allocated, true),
          chooser.choose(100_B, allocated),
          chooser.choose(100_B, allocated, true)};
}

/// Such a step in which everything is offloaded, recorded. Where nothing is recomputed it needs 700
/// bytes, and `besides` more.
std::optional<BudgetShortage> record(BudgetChooser& chooser,
                                     Bytes first = 100_B,
                                     Bytes besides = {}) {
  const std::vector<Action> actions = offer(chooser, first);
  StepCurve curve = gated_block();
  const bool offloads = std::all_of(
      actions.begin(), actions.end(), [](Action action) { return action == Action::kOffload; });
  for (std::uint64_t& allocated : curve.allocated)
    allocated = offloads ? std::min<std::uint64_t>(allocated, 700) + besides.count() : allocated;
  curve.optimizer_begin = curve.allocated.size();
  return chooser.end_step(curve);
}

/// Its curve, where it begins with 690 bytes.
StepCurve begun_with_690() {
  StepCurve curve = gated_block();
  curve.optimizer_begin = curve.allocated.size();
  for (std::uint64_t& allocated : curve.allocated)
    allocated += 190;
  return curve;
}

TEST(OperandBudgetsTest, ARecordedStepMayExceedABudgetThatAPlanMeets) {
  BudgetChooser chooser(850_B);
  chooser.set_free_at_once();

  EXPECT_FALSE(record(chooser));
  EXPECT_EQ(offer(chooser)[3], Action::kOffload);
}

TEST(OperandBudgetsTest, TheSmallestBudgetFitsAStepWithoutRecomputation) {
  BudgetChooser chooser(699_B);
  chooser.set_free_at_once();

  const auto missed = record(chooser);

  ASSERT_TRUE(missed);
  EXPECT_EQ(missed->least, 700_B);
}

TEST(OperandBudgetsTest, IfMemoryIsFreedLateTheSmallestBudgetIsThatOfTheRecordedStep) {
  BudgetChooser chooser(850_B);

  const auto missed = record(chooser);

  ASSERT_TRUE(missed);
  EXPECT_EQ(missed->least, 900_B);
}

TEST(OperandBudgetsTest, AStepIsNotRecordedAgainIfThatWouldExceedTheBudget) {
  for (const Bytes budget : {999_B, 1000_B}) {  // what it would need: 900, and 100 more allocated
    BudgetChooser chooser(budget);
    chooser.set_free_at_once();
    record(chooser);

    const bool recorded = offer(chooser, 100_B, 600_B)[3] == Action::kRecompute;

    EXPECT_EQ(recorded, budget == 1000_B) << budget.count();
    EXPECT_EQ(chooser.needs_times(), recorded);
  }
}

TEST(OperandBudgetsTest, IfNothingIsPredictedToFitTheLeastPlanIsFollowed) {
  BudgetChooser chooser(880_B);
  chooser.set_free_at_once();
  record(chooser);

  const std::vector<Action> offloaded =
      offer(chooser, 100_B, 690_B);  // 890 with all of it offloaded

  EXPECT_EQ(std::count(offloaded.begin(), offloaded.end(), Action::kRecompute), 0);
  EXPECT_GE(std::count(offloaded.begin(), offloaded.end(), Action::kOffload), 3);

  // Its need does not predict the needs of others beyond their plans.
  chooser.end_step(begun_with_690());
  offer(chooser, 100_B, 690_B);
  const auto missed = chooser.end_step(begun_with_690());
  ASSERT_TRUE(missed);
  EXPECT_EQ(missed->least, 890_B);
}

TEST(OperandBudgetsTest, TheShortageOfAStepRecordedAgainCountsAgain) {
  BudgetChooser chooser(1000_B);
  chooser.set_free_at_once();
  record(chooser);
  StepCurve over = begun_with_690();
  over.allocated[8] = 1200;
  offer(chooser, 100_B, 690_B);
  EXPECT_FALSE(chooser.end_step(over));
  offer(chooser, 100_B, 690_B);
  EXPECT_FALSE(chooser.end_step(begun_with_690()));  // recorded

  EXPECT_EQ(offer(chooser, 100_B, 690_B)[3], Action::kOffload);
  EXPECT_FALSE(chooser.end_step(over));
  offer(chooser, 100_B, 690_B);
  const auto missed = chooser.end_step(begun_with_690());

  ASSERT_TRUE(missed);
  EXPECT_EQ(missed->least, 1090_B);
}

TEST(OperandBudgetsTest, IfPlansNeedNoLessThanARecordingAStepIsRecorded) {
  BudgetChooser chooser(880_B);
  for (int storage = 0; storage < 3; ++storage)
    chooser.choose(100_B, 500_B);
  StepCurve curve = gated_block();
  curve.absences.clear();
  curve.asks.clear();
  curve.optimizer_begin = curve.allocated.size();
  chooser.end_step(curve);

  chooser.choose(100_B, 690_B);

  EXPECT_TRUE(chooser.needs_times());
}

TEST(OperandBudgetsTest, BytesThatTheFirstPlannedStepDidNotNeedAreNotPlannedAgain) {
  BudgetChooser chooser(900_B);
  chooser.set_free_at_once();
  record(chooser);
  // 190 more are allocated than thought of: at least 890 with all of it offloaded, so that all of
  // it does.
  const std::vector<Action> offloaded = offer(chooser, 100_B, 690_B);
  EXPECT_EQ(offloaded[1], Action::kOffload);
  EXPECT_EQ(offloaded[3], Action::kOffload);
  EXPECT_TRUE(chooser.shapes().known().empty());
  const std::uint64_t records = chooser.counts().records;
  StepCurve curve = gated_block();  // 190 of which were there before
  curve.optimizer_begin = curve.allocated.size();
  for (std::uint64_t& allocated : curve.allocated)
    allocated = std::min<std::uint64_t>(allocated, 700);
  chooser.end_step(curve);

  EXPECT_EQ(chooser.shapes().known().size(), 1U);
  EXPECT_GT(chooser.counts().records, records);
  EXPECT_EQ(offer(chooser, 100_B, 690_B), std::vector<Action>(4, Action::kKeep));
}

TEST(OperandBudgetsTest, AStepThatBeginsWithLessThanPredictedIsNotCorrected) {
  BudgetChooser chooser(880_B);
  chooser.set_free_at_once();
  record(chooser);
  chooser.choose(100_B, 690_B);
  chooser.abandon_step();
  offer(chooser, 100_B, 600_B);
  StepCurve curve = gated_block();
  curve.optimizer_begin = curve.allocated.size();
  for (std::uint64_t& allocated : curve.allocated)
    allocated = std::min<std::uint64_t>(allocated + 100, 880);  // as much as it may
  chooser.end_step(curve);

  EXPECT_EQ(chooser.shapes().known().at(0).recorded.most(), 1090_B);
}

/// The shortage after a planned step that needed `needed` bytes, when the next one is recorded.
std::optional<BudgetShortage> missed_after(std::uint64_t needed) {
  BudgetChooser chooser(750_B);
  chooser.set_free_at_once();
  record(chooser);
  EXPECT_EQ(offer(chooser)[3], Action::kOffload);
  StepCurve over = gated_block();
  over.allocated[8] = needed;
  chooser.end_step(over);
  return record(chooser);
}

TEST(OperandBudgetsTest, ExcessOfPlannedStepsCountsInTheSmallestBudget) {
  const auto missed = missed_after(810);

  ASSERT_TRUE(missed);
  EXPECT_EQ(missed->least, 760_B);
}

TEST(OperandBudgetsTest, TheSmallestBudgetNeverExceedsThePeakOfTheRecordedStep) {
  const auto missed = missed_after(2000);

  ASSERT_TRUE(missed);
  EXPECT_EQ(missed->least, 900_B);
}

TEST(OperandBudgetsTest, ExcessOfAnotherShapeDoesNotCount) {
  BudgetChooser chooser(750_B);
  chooser.set_free_at_once();
  for (int steps = 0; steps < 2; ++steps) {
    offer(chooser);
    chooser.choose(1_B, 500_B);  // longer by one
    StepCurve curve = gated_block();
    if (steps == 1) curve.allocated[8] = 900;
    chooser.end_step(curve);
  }

  EXPECT_FALSE(record(chooser));
}

TEST(OperandBudgetsTest, PlansAreRemadeOnceItIsKnownHowMemoryIsFreed) {
  BudgetChooser chooser(850_B);
  chooser.set_free_at_once();
  record(chooser);
  offer(chooser);
  BudgetChooser other(850_B);
  ASSERT_TRUE(other.learn(chooser.shapes().known().at(0)).ok());
  ASSERT_EQ(offer(other)[3], Action::kRecompute);
  other.abandon_step();

  other.set_free_at_once();

  EXPECT_EQ(offer(other)[3], Action::kOffload);
}

TEST(OperandBudgetsTest, IfNoStepRepeatsABudgetIsMissedOnceEverythingIsOffloaded) {
  BudgetChooser chooser(850_B);
  chooser.set_free_at_once();
  std::optional<BudgetShortage> missed;

  std::uint64_t steps = 0;
  while (!missed && ++steps < 1000)
    missed = record(chooser, Bytes{1000 + steps}, 160_B);

  ASSERT_TRUE(missed);
  EXPECT_GT(steps, 1U);
  EXPECT_EQ(missed->least, 860_B);
}

TEST(OperandBudgetsTest, IfNoStepRepeatsABudgetThatFullOffloadMeetsIsNotMissed) {
  BudgetChooser chooser(850_B);
  chooser.set_free_at_once();

  for (std::uint64_t steps = 0; steps < 1000; ++steps) {
    ASSERT_FALSE(record(chooser, Bytes{1000 + steps})) << steps;
    if (steps % 100 != 0) continue;
    offer(chooser, Bytes{1000 + steps});
    StepCurve planned = gated_block();
    planned.allocated[8] = 850;
    ASSERT_FALSE(chooser.end_step(planned)) << steps;
  }
}

TEST(OperandBudgetsTest, ImpossibleOperandsAreRejected) {
  BudgetChooser chooser(900_B);
  record(chooser);
  offer(chooser);
  const KnownStep right = chooser.shapes().known().front();
  ASSERT_TRUE(check_known(right).ok());
  ASSERT_EQ(right.recorded.operands.size(), 4U);
  const std::vector<void (*)(std::vector<Operand>&)> spoilers = {
      [](auto& operands) { operands[0].storage = 4; },
      [](auto& operands) { operands[0].bytes = ~0ULL; },
      [](auto& operands) { operands[0].from = operands[0].to; },
      [](auto& operands) { operands[0].to = 1000; },
      [](auto& operands) { operands[0].products[0].storage = 4; },
      [](auto& operands) {
        operands[3].products[0] = {operands[3].storage, 3};
      },  // itself
      [](auto& operands) { operands[3].products[0].within = 4; },
      [](auto& operands) { operands[3].products[0].within = 0; },  // of another storage
      [](auto& operands) { operands.push_back(operands[0]); },
  };
  for (std::size_t each = 0; each < spoilers.size(); ++each) {
    KnownStep wrong = right;
    spoilers[each](wrong.recorded.operands);

    EXPECT_EQ(check_known(wrong).code(), Code::kInvalidArgument) << each;
  }
  for (const std::vector<std::uint64_t>& besides :
       {std::vector<std::uint64_t>(3), {0, 0, 0, ~0ULL}}) {
    KnownStep wrong = right;
    wrong.recorded.besides = besides;

    EXPECT_EQ(check_known(wrong).code(), Code::kInvalidArgument) << besides.size();
  }
}

}  // namespace
}  // namespace spillway
