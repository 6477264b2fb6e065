// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/budget.h"

#include "allocator/plan/budget_chooser.h"
#include "allocator/plan/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace spillway {
namespace {

using namespace literals;

/// A step whose storages are saved one by one and wanted again in reverse, as training has them.
StepCurve nested(const std::vector<std::uint64_t>& sizes, std::uint64_t base) {
  StepCurve curve;
  const std::size_t count = sizes.size();
  curve.live.assign(2 * count + 1, base);
  for (std::size_t index = 0; index < count; ++index)
    curve.absences.push_back({index, index + 1, 2 * count - index, sizes[index]});
  return curve;
}

/// What the step needs with these storages away, counted place by place.
std::uint64_t peak_of(const StepCurve& curve, const std::vector<bool>& moves) {
  std::vector<std::uint64_t> live = curve.live;
  for (const auto& away : curve.absences) {
    for (std::size_t place = away.from; place < away.to && !moves[away.storage]; ++place)
      live[place] += away.bytes;
  }
  return *std::max_element(live.begin(), live.end());
}

std::uint64_t moved(const std::vector<std::uint64_t>& sizes, const std::vector<bool>& moves) {
  std::uint64_t sum = 0;
  for (std::size_t index = 0; index < sizes.size(); ++index)
    sum += moves[index] ? sizes[index] : 0;
  return sum;
}

/// Of storages that can only move, without times.
StepProfile profile_of(const StepCurve& curve, const std::vector<std::uint64_t>& sizes) {
  std::vector<Bytes> bytes;
  for (const std::uint64_t size : sizes)
    bytes.emplace_back(size);
  const std::vector<bool> none(sizes.size());
  return spillway::profile_of(RecordedStep(curve, sizes.size()), bytes, none, nullptr);
}

std::vector<bool> moves(const BudgetPlan& plan) {
  std::vector<bool> moves;
  for (const Action action : plan.actions)
    moves.push_back(action == Action::kMove);
  return moves;
}

TEST(BudgetPlanTest, RandomStepsMeetTheirBudgetAndALargerOneMovesNoMore) {
  const std::uint64_t seed = 5;
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 200; ++trial) {
    StepCurve curve;
    for (int place = 0; place < 40; ++place)
      curve.live.push_back(random() % 1000);
    std::vector<std::uint64_t> sizes(1 + random() % 12);
    for (std::size_t index = 0; index < sizes.size(); ++index) {
      sizes[index] = 1 + random() % 300;
      const std::size_t from = random() % 40;
      curve.absences.push_back({index, from, from + random() % (41 - from), sizes[index]});
    }
    const StepProfile step = profile_of(curve, sizes);

    std::uint64_t before = ~0ULL;
    for (std::uint64_t budget = 500; budget < 4000; budget += 100) {
      const BudgetPlan plan = plan_step(step, Bytes{budget});
      const std::uint64_t needs = peak_of(curve, moves(plan));
      ASSERT_EQ(check_plan(step, plan, Bytes{budget}), std::nullopt) << "trial " << trial;
      ASSERT_GE(plan.peak.count(), needs) << "seed " << seed << ", trial " << trial;
      ASSERT_EQ(plan.least, curve.peak());
      ASSERT_LE(plan.peak.count(), std::max(budget, plan.least.count()));
      ASSERT_LE(moved(sizes, moves(plan)), before) << "seed " << seed << ", trial " << trial;
      before = moved(sizes, moves(plan));
    }
  }
}

TEST(BudgetPlanTest, TheEarliestStoragesMove) {
  const StepCurve curve = nested({100, 100, 100, 100}, 1000);

  const BudgetPlan plan = plan_step(profile_of(curve, {100, 100, 100, 100}), 1200_B);

  EXPECT_EQ(moves(plan), (std::vector{true, true, false, false}));
  EXPECT_EQ(plan.peak, 1200_B);
}

TEST(BudgetPlanTest, WhatLowersNoPeakStaysWhateverTheBudget) {
  StepCurve curve;
  curve.live = {10, 50, 10, 1000, 10};
  curve.absences = {{0, 1, 3, 100}, {1, 2, 4, 100}};

  const BudgetPlan plan = plan_step(profile_of(curve, {100, 100}), 1_B);

  EXPECT_EQ(moves(plan), (std::vector{false, true}));
  EXPECT_EQ(plan.least, 1000_B);
}

/// Offers a step; the curve is of what it moved.
std::vector<bool> step(BudgetChooser& chooser,
                       const std::vector<std::uint64_t>& sizes,
                       std::uint64_t base,
                       std::optional<BudgetShortage>* missed = nullptr,
                       std::uint64_t optimizer = 0) {
  std::vector<bool> moves;
  for (const std::uint64_t size : sizes)
    moves.push_back(chooser.choose(Bytes{size}, Bytes{base}) == Action::kMove);
  StepCurve curve = nested(sizes, base);
  for (const auto& away : std::exchange(curve.absences, {})) {
    if (moves[away.storage]) {
      curve.absences.push_back(away);
      continue;
    }
    for (std::size_t place = away.from; place < away.to; ++place)
      curve.live[place] += away.bytes;
  }
  curve.tail = curve.live.size();
  if (optimizer > 0) curve.live.push_back(optimizer);
  const auto missing = chooser.end_step(curve, optimizer > 0);
  if (missed != nullptr) *missed = missing;
  return moves;
}

TEST(BudgetChooserTest, ANewShapeMovesEverythingAndAKnownOneAsLittleAsIsEnough) {
  BudgetChooser chooser(1200_B);

  EXPECT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, true, true}));
  EXPECT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, false, false}));
}

/// Times of a step whose four places take a second each, and whose link moves 1000 bytes a second.
StepTimes even_times(std::size_t places) {
  StepTimes times;
  for (std::size_t place = 0; place < places; ++place)
    times.marks.push_back({place, static_cast<double>(place)});
  times.end = static_cast<double>(places);
  times.turn = places / 2 + 1;
  times.link = {1000, 1000, 0};
  return times;
}

TEST(BudgetChooserTest, APlannedStepThatTakesLessTimeThanPredictedCorrectsWhatComputingTakes) {
  BudgetChooser chooser(1300_B);
  step(chooser, {100, 100, 100}, 1000);
  chooser.time(even_times(7));
  step(chooser, {100, 100, 100}, 1000);
  const double predicted = chooser.planned_last()->plan.timing.total();
  ASSERT_EQ(predicted, 7);

  chooser.took(predicted / 2);
  step(chooser, {100, 100, 100}, 1000);

  EXPECT_EQ(chooser.planned_last()->plan.timing.total(), predicted / 2);
  EXPECT_EQ(chooser.planned_last()->seconds, std::nullopt);
  chooser.took(predicted);  // a step that something else held up says nothing
  step(chooser, {100, 100, 100}, 1000);
  EXPECT_EQ(chooser.planned_last()->plan.timing.total(), predicted / 2);
  EXPECT_EQ(chooser.planned_last()->seconds, predicted);
}

TEST(BudgetChooserTest, WhatAStepOfAnotherShapeOrOfAnotherRegionTookSaysNothing) {
  BudgetChooser chooser(1300_B);
  step(chooser, {100, 100, 100}, 1000);
  chooser.time(even_times(7));
  step(chooser, {100, 100, 100}, 1000);
  ASSERT_EQ(chooser.planned_last()->plan.timing.total(), 7);

  step(chooser, {100, 100}, 1000);  // begins as the planned one, and ends before it
  chooser.took(1);
  step(chooser, {100, 100, 100}, 1000);
  EXPECT_EQ(chooser.planned_last()->plan.timing.total(), 7);
  EXPECT_EQ(chooser.planned_last()->seconds, std::nullopt);

  chooser.ended_elsewhere();
  chooser.took(1);
  step(chooser, {100, 100, 100}, 1000);
  EXPECT_EQ(chooser.planned_last()->plan.timing.total(), 7);
  EXPECT_EQ(chooser.planned_last()->seconds, std::nullopt);

  chooser.took(7);
  EXPECT_EQ(chooser.planned_last()->seconds, 7);
}

TEST(BudgetChooserTest, AStepThatNeededMoreThanTheBudgetIsPlannedWithThatMuchLess) {
  BudgetChooser chooser(1200_B);
  step(chooser, {100, 100, 100}, 1000);
  ASSERT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, false, false}));

  chooser.choose(100_B, 1000_B);
  chooser.choose(100_B, 1000_B);
  chooser.choose(100_B, 1000_B);
  StepCurve over = nested({100, 100, 100}, 1000);
  over.live[3] = 1250;
  chooser.end_step(over);

  EXPECT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, true, true}));
  EXPECT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, true, false}));
}

TEST(BudgetChooserTest, WhatCanBeComputedAgainIsAnotherShapeThanWhatCannot) {
  BudgetChooser chooser(2000_B);
  step(chooser, {100, 100}, 1000);
  step(chooser, {100, 100}, 1000);

  EXPECT_EQ(chooser.choose(100_B, 1000_B, true), Action::kRebuild);
  EXPECT_FALSE(chooser.planned());
}

TEST(BudgetChooserTest, WhatMovesComesBackAsEarlyAsThereIsRoom) {
  BudgetChooser chooser(1350_B);
  for (int steps = 0; steps < 2; ++steps) {
    step(chooser, {100, 100, 100, 100, 100}, 1000);
    if (steps == 0) chooser.time(even_times(11));
  }

  for (int storage = 0; storage < 5; ++storage)
    chooser.choose(100_B, 1000_B);

  // The first two have moved: each comes once one of those that were kept has been used and gone.
  std::vector<std::size_t> due;
  for (std::size_t wanted = 5; wanted-- > 0;)
    for (const std::size_t each : chooser.due_with(wanted)) {
      EXPECT_LT(each, wanted);
      due.push_back(each);
    }
  EXPECT_EQ(due, (std::vector<std::size_t>{1, 0}));
}

TEST(StepTimesTest, AProfileHasWhatWasMeasuredOfEachStorage) {
  const StepCurve curve = nested({100, 100}, 1000);
  StepTimes times = even_times(5);
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

TEST(BudgetChooserTest, WithATimeLimitAsLittleIsKeptAsTheTimeAllows) {
  BudgetChooser quick(2000_B, 1.0);
  BudgetChooser slow(2000_B, 100);
  for (BudgetChooser* chooser : {&quick, &slow}) {
    step(*chooser, {100, 100, 100}, 1000);
    StepTimes times = even_times(7);
    times.link = {50, 50, 0};  // two seconds for each
    chooser->time(times);
  }

  const std::vector<bool> free_moves = step(quick, {100, 100, 100}, 1000);
  EXPECT_EQ(step(slow, {100, 100, 100}, 1000), (std::vector{true, true, true}));

  EXPECT_EQ(quick.planned_last()->plan.timing.total(), 7);
  // It is compared with what could be had within the memory that it was made for, not with 2000.
  EXPECT_EQ(slow.planned_last()->budget, slow.planned_last()->plan.least);
  EXPECT_NE(free_moves, (std::vector{true, true, true}));
}

TEST(BudgetChooserTest, WhatOneRunHasRecordedAnotherPlansWithFromItsFirstStepOn) {
  BudgetChooser chooser(1200_B);
  step(chooser, {100, 100, 100}, 1000);
  step(chooser, {100, 100, 100}, 1000);
  const std::vector<KnownStep> known = chooser.known();
  ASSERT_EQ(known.size(), 1u);

  BudgetChooser other(1200_B);
  ASSERT_TRUE(other.learn(known.front()).ok());

  EXPECT_EQ(step(other, {100, 100, 100}, 1000), (std::vector{true, false, false}));
}

TEST(BudgetChooserTest, WhatIsKnownAlreadyIsNotReplaced) {
  BudgetChooser chooser(1200_B);
  step(chooser, {100, 100, 100}, 1000);
  step(chooser, {100, 100, 100}, 1000);
  KnownStep wrong = chooser.known().front();
  for (std::uint64_t& peak : wrong.recorded.peaks)
    peak = 5000;

  ASSERT_TRUE(chooser.learn(wrong).ok());

  EXPECT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, false, false}));
}

TEST(BudgetChooserTest, WhatNoStepCanHaveRecordedIsRefused) {
  BudgetChooser chooser(1200_B);
  step(chooser, {100, 100, 100}, 1000);
  chooser.time(even_times(7));
  step(chooser, {100, 100, 100}, 1000);
  const KnownStep right = chooser.known().front();
  ASSERT_TRUE(check_known(right).ok());
  const std::vector<void (*)(KnownStep&)> spoilers = {
      [](KnownStep& step) { step.sizes.clear(); },
      [](KnownStep& step) { step.sizes[0] = Bytes{~0ULL}; },
      [](KnownStep& step) { step.rebuildable.pop_back(); },
      [](KnownStep& step) { step.recorded.peaks.clear(); },
      [](KnownStep& step) { step.recorded.peaks[0] = ~0ULL; },
      [](KnownStep& step) { step.recorded.edges.pop_back(); },
      [](KnownStep& step) { std::reverse(step.recorded.edges.begin(), step.recorded.edges.end()); },
      [](KnownStep& step) { step.recorded.absences[0].storage = 3; },
      [](KnownStep& step) { step.recorded.absences[2].storage = 0; },
      [](KnownStep& step) { step.recorded.absences[0].to = 1000; },
      [](KnownStep& step) { step.recorded.absences[0].from = step.recorded.absences[0].to; },
      [](KnownStep& step) { step.recorded.storages = 4; },
      [](KnownStep& step) { step.times->marks[1].seconds = -1; },
      [](KnownStep& step) { step.times->end = 0; },
      [](KnownStep& step) {
        step.times->rebuild = {0, 0, 0, 0};
      },
      [](KnownStep& step) { step.times->link.out = 0.0 / 0.0; },
  };
  for (std::size_t each = 0; each < spoilers.size(); ++each) {
    KnownStep wrong = right;
    spoilers[each](wrong);
    BudgetChooser other(1200_B);

    EXPECT_EQ(other.learn(wrong).code(), Code::kInvalidArgument) << each;
    EXPECT_EQ(other.choose(100_B, 1000_B), Action::kMove) << each;
    EXPECT_FALSE(other.planned()) << each;
  }
}

TEST(BudgetTest, SizesSharesAndWhatIsLeftAreRead) {
  EXPECT_EQ(Budget::of("2GiB", "budget").value().on(10_GiB, 8_GiB), 2_GiB);
  EXPECT_EQ(Budget::of("50%", "budget").value().on(10_GiB, 8_GiB), 5_GiB);
  EXPECT_EQ(Budget::of("auto", "budget").value().on(10_GiB, Bytes{1000}), 950_B);
}

TEST(BudgetTest, AnythingElseIsRefusedByName) {
  for (const char* text : {"", "much", "20GB", "0%", "101%", "-5%", "%", "5%%", "nan%", "auto "}) {
    const auto budget = Budget::of(text, "budget");
    ASSERT_FALSE(budget.ok()) << text;
    EXPECT_NE(budget.status().detail().find("budget="), std::string::npos) << text;
  }
}

TEST(BudgetChooserTest, AFirstStepThatBeganWithLessIsRecordedAgainOnce) {
  BudgetChooser chooser(1200_B);
  step(chooser, {100, 100, 100}, 900);

  EXPECT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, true, true}));
  EXPECT_EQ(step(chooser, {100, 100, 100}, 1100), (std::vector{true, true, false}));
}

TEST(BudgetChooserTest, ABudgetBelowWhatIsLeftIsMissedByTheSmallestThatWouldDo) {
  BudgetChooser chooser(999_B);
  std::optional<BudgetShortage> missed;

  step(chooser, {100, 100}, 1000, &missed);

  EXPECT_EQ(missed->least, 1000_B);
}

TEST(BudgetChooserTest, WhatTheOptimizerNeedsCounts) {
  BudgetChooser chooser(1500_B);
  std::optional<BudgetShortage> missed;

  step(chooser, {100, 100}, 1000, &missed, 1501);

  EXPECT_EQ(missed->least, 1501_B);
}

TEST(BudgetChooserTest, TheSmallestIsALowerBoundUntilAnOptimizersStepIsKnown) {
  BudgetChooser chooser(999_B);
  std::optional<BudgetShortage> missed;
  step(chooser, {100, 100}, 900, &missed, 1000);
  EXPECT_TRUE(missed->lower_bound);
  step(chooser, {100, 100}, 1000, &missed, 1700);
  EXPECT_TRUE(missed->lower_bound);  // it began with what the first one's optimizer left

  step(chooser, {100, 100}, 1000, &missed);

  EXPECT_FALSE(missed->lower_bound);
  EXPECT_EQ(missed->least, 1700_B);
}

TEST(BudgetChooserTest, FromTheFirstDifferenceOnEverythingMovesAndTheNewShapeIsRecordedNext) {
  BudgetChooser chooser(2000_B);
  step(chooser, {100, 100, 100}, 1000);

  EXPECT_EQ(step(chooser, {100, 200, 100}, 1000), (std::vector{false, true, true}));
  EXPECT_EQ(chooser.mismatches(), 1U);
  EXPECT_EQ(step(chooser, {100, 200, 100}, 1000), (std::vector{true, true, true}));
  EXPECT_EQ(step(chooser, {100, 200, 100}, 1000), (std::vector{false, false, false}));
  EXPECT_EQ(chooser.mismatches(), 1U);
}

TEST(BudgetChooserTest, WhatOneOfTwoShapesThatBeginAlikeMovesIsMovedUntilTheyDiffer) {
  BudgetChooser chooser(1200_B);
  const std::vector<std::uint64_t> small{100, 50, 50};
  const std::vector<std::uint64_t> large{100, 100, 100};
  for (int steps = 0; steps < 3; ++steps) {
    step(chooser, small, 1000);
    step(chooser, large, 1000);
  }
  const std::uint64_t mismatches = chooser.mismatches();

  EXPECT_EQ(step(chooser, small, 1000), (std::vector{true, false, false}));
  EXPECT_EQ(step(chooser, large, 1000), (std::vector{true, false, false}));
  EXPECT_EQ(chooser.mismatches(), mismatches);
}

TEST(BudgetChooserTest, AShorterStepIsAShapeOfItsOwn) {
  BudgetChooser chooser(1200_B);
  step(chooser, {100, 100, 100}, 1000);

  step(chooser, {100, 100}, 1000);
  step(chooser, {100, 100}, 1000);

  EXPECT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, false, false}));
}

TEST(BudgetChooserTest, AStepWithoutABackwardPassLeavesThePlanAsItWas) {
  BudgetChooser chooser(1200_B);
  step(chooser, {100, 100, 100}, 1000);
  chooser.choose(100_B, 1000_B);

  chooser.abandon_step();

  EXPECT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, false, false}));
}

TEST(BudgetChooserTest, AStepInWhichSomethingCouldNotMoveIsNoRecording) {
  BudgetChooser chooser(1200_B);
  chooser.choose(100_B, 1000_B);
  chooser.not_moved();
  chooser.end_step(nested({100}, 1000));

  EXPECT_EQ(chooser.choose(100_B, 1000_B), Action::kMove);
}

}  // namespace
}  // namespace spillway
