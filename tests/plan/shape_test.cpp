// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/shape.h"

#include "tests/plan/offered_steps.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace spillway {
namespace {

using namespace literals;

constexpr ShapeState kStates[] = {ShapeState::kNew,
                                  ShapeState::kRecorded,
                                  ShapeState::kImported,
                                  ShapeState::kAdjusted,
                                  ShapeState::kCorrected,
                                  ShapeState::kSettled,
                                  ShapeState::kBudgetExceeded};
constexpr ShapeEvent kEvents[] = {ShapeEvent::kRecorded,
                                  ShapeEvent::kBeganAlike,
                                  ShapeEvent::kAdjusted,
                                  ShapeEvent::kEnded,
                                  ShapeEvent::kFollowed,
                                  ShapeEvent::kExceeded};

TEST(ShapeStateTest, OnlyARecordingMakesAShapePlannableAndOnlyAnExcessDropsIt) {
  for (const ShapeState state : kStates) {
    for (const ShapeEvent event : kEvents) {
      const ShapeState next = transition(state, event);
      const bool expected =
          has_recording(state) ? event != ShapeEvent::kExceeded : event == ShapeEvent::kRecorded;
      EXPECT_EQ(has_recording(next), expected);
    }
  }
}

TEST(ShapeStateTest, EveryStateIsReachedFromANewOrALearnedShape) {
  std::set<ShapeState> reached{ShapeState::kNew, ShapeState::kImported};
  for (std::size_t before = 0; before != reached.size();) {
    before = reached.size();
    for (const ShapeState state : std::set<ShapeState>(reached))
      for (const ShapeEvent event : kEvents)
        reached.insert(transition(state, event));
  }
  EXPECT_EQ(reached.size(), std::size(kStates));
}

TEST(ShapeStateTest, OnlyTheFirstRecordingHasToBeConfirmed) {
  EXPECT_EQ(transition(ShapeState::kNew, ShapeEvent::kRecorded), ShapeState::kRecorded);
  for (const ShapeState state : kStates) {
    if (state == ShapeState::kNew) continue;
    EXPECT_EQ(transition(state, ShapeEvent::kRecorded), ShapeState::kSettled);
  }
}

/// A shape of three storages of 100 bytes, confirmed to begin with 1000.
Shape settled_shape(const PlanTerms& terms) {
  Shape shape(7, {100_B, 100_B, 100_B}, {false, false, false});
  shape.record(nested({100, 100, 100}, 1000));
  shape.begin(1000_B, terms);
  return shape;
}

TEST(RecordedStepTest, ThePeakOfALargerBeginningIsThatOfTheConvertedRecording) {
  for (const std::size_t optimizer_begin : {0U, 2U, 4U, 7U}) {
    StepCurve curve = nested({100, 200, 300}, 1000);
    curve.allocated[5] = 5000;  // in the optimizer phase of some
    curve.optimizer_begin = optimizer_begin;
    const RecordedStep recorded(curve, 3);
    for (const Bytes begin : {1000_B, 1001_B, 6000_B}) {
      RecordedStep converted = recorded;
      converted.begin_with(begin);
      EXPECT_EQ(recorded.most_beginning_with(begin), converted.most()) << optimizer_begin;
    }
  }
}

TEST(ShapeTest, APlanIsMadeFromASnapshotAndServesTheStepsThatBeginAlike) {
  const PlanTerms terms{1200_B};
  Shape shape = settled_shape(terms);
  ASSERT_EQ(shape.plan(), nullptr);

  auto request = shape.request(terms);
  ASSERT_TRUE(request);
  request->run();
  shape.adopt(*std::move(request));

  ASSERT_NE(shape.plan(), nullptr);
  EXPECT_FALSE(shape.request(terms));
  EXPECT_LE(shape.planned_peak(), terms.budget);
}

TEST(ShapeTest, APlanOfAnOutdatedSnapshotIsDiscarded) {
  const PlanTerms terms{1200_B};
  Shape shape = settled_shape(terms);
  auto request = shape.request(terms);
  ASSERT_TRUE(request);
  request->run();

  shape.record(nested({100, 100, 100}, 1100));  // meanwhile
  shape.adopt(*std::move(request));

  EXPECT_EQ(shape.plan(), nullptr);
}

TEST(ShapeTest, AnEarlierPlanServesAStepThatBeginsWithLessButNotOneThatBeginsWithMore) {
  const PlanTerms terms{1200_B};
  Shape shape = settled_shape(terms);
  auto request = shape.request(terms);
  request->run();
  shape.adopt(*std::move(request));

  shape.begin(900_B, terms);
  EXPECT_NE(shape.plan(), nullptr);
  shape.begin(1100_B, terms);
  EXPECT_EQ(shape.plan(), nullptr);
  EXPECT_TRUE(shape.request(terms));
}

TEST(ShapeTest, APlanThatDoesNotFitIsMadeOnceForEachBeginning) {
  const PlanTerms terms{1010_B};
  Shape shape = settled_shape(PlanTerms{1200_B});
  auto request = shape.request(PlanTerms{900_B});
  ASSERT_TRUE(request);
  request->run();
  shape.adopt(*std::move(request));
  ASSERT_EQ(shape.plan(), nullptr);

  EXPECT_FALSE(shape.request(terms));
  shape.begin(950_B, terms);
  EXPECT_TRUE(shape.request(terms));
}

/// A shape that has a plan, made with times.
Shape timed_shape_with_plan(const PlanTerms& terms) {
  Shape shape = settled_shape(terms);
  shape.time(even_times(7));
  auto request = shape.request(terms);
  EXPECT_TRUE(request);
  request->run();
  shape.adopt(*std::move(request));
  return shape;
}

TEST(ShapeTest, APlanThatSharesItsBudgetLeavesTheRestToModelState) {
  PlanTerms terms{2000_B};
  terms.model_state = {800_B};
  const Shape shape = timed_shape_with_plan(terms);

  ASSERT_NE(shape.plan(), nullptr);
  EXPECT_GT(shape.beside(), 0_B);
  EXPECT_EQ(shape.beside() + shape.plan()->budget, terms.budget);
  EXPECT_LE(shape.planned_peak() + shape.beside(), terms.budget);
  EXPECT_EQ(shape.planned(terms.foreseen)->beside, shape.beside());
}

TEST(ShapeTest, OnlyMuchMoreOrLessModelStateNeedsAnotherPlan) {
  PlanTerms terms{2000_B};
  terms.model_state = {800_B};
  Shape shape = timed_shape_with_plan(terms);

  terms.model_state = {810_B};
  EXPECT_FALSE(shape.request(terms));
  terms.model_state = {600_B};
  EXPECT_TRUE(shape.request(terms));
  terms.model_state = {1000_B};
  EXPECT_TRUE(shape.request(terms));
}

TEST(ShapeTest, ModelStateThatStreamsNeedsAPlanOfItsOwn) {
  PlanTerms terms{2000_B};
  terms.model_state = {800_B};
  Shape shape = timed_shape_with_plan(terms);
  EXPECT_TRUE(shape.model_state().empty());
  terms.model_state.streams = true;
  EXPECT_TRUE(shape.request(terms));
}

/// Known sequences that begin with the same storage, and differ in their last one.
BudgetChooser known_sequences(std::size_t sequences, std::size_t storages, Bytes budget) {
  BudgetChooser chooser(budget);
  for (std::size_t sequence = 0; sequence < sequences; ++sequence) {
    std::vector<std::uint64_t> sizes(storages, 100);
    sizes.back() = 1 + sequence;
    for (int recorded = 0; recorded < 3; ++recorded)
      step(chooser, sizes, 1000);
  }
  return chooser;
}

TEST(BudgetChooserPlansTest, AStepPlansABoundedNumberOfStoragesHoweverManySequencesAreKnown) {
  constexpr std::size_t kStorages = 1000;
  const Bytes budget{1000 + 50 * kStorages};
  BudgetChooser chooser = known_sequences(64, kStorages, budget);

  std::size_t planned = 0;
  for (const PlanRequest& request : chooser.requests(100_B, 900_B))
    planned += request.sizes.size();

  EXPECT_GT(planned, 0U);
  EXPECT_LE(planned, BudgetChooser::kMaxPlanned);
}

TEST(BudgetChooserPlansTest, AStepOfOneOfManySequencesStaysWithinTheBudgetWithoutTheirPlans) {
  constexpr std::size_t kStorages = 200;
  const Bytes budget{1000 + 50 * kStorages};
  BudgetChooser chooser = known_sequences(64, kStorages, budget);

  std::vector<std::uint64_t> sizes(kStorages, 100);
  for (const std::uint64_t last : {3U, 40U, 64U}) {
    sizes.back() = last;
    for (const std::uint64_t base : {1100U, 1050U, 1200U}) {  // each needs other plans
      std::optional<BudgetShortage> missed;
      step(chooser, sizes, base, &missed);
      EXPECT_FALSE(missed) << base;
    }
  }
}

TEST(BudgetChooserPlansTest, TheLastRemainingSequenceIsPlannedInMidStep) {
  constexpr std::size_t kStorages = 1000;
  BudgetChooser chooser = known_sequences(64, kStorages, Bytes{1000 + 50 * kStorages});
  // All others have another last storage, so only this one remains once they are too short.
  std::vector<std::uint64_t> sizes(kStorages + 10, 100);
  for (int recorded = 0; recorded < 2; ++recorded)
    step(chooser, sizes, 1000);
  for (int other = 0; other < 8; ++other) {  // now it is not among the most recently used
    std::vector<std::uint64_t> recent(kStorages, 100);
    recent.back() = static_cast<std::uint64_t>(1 + other);
    step(chooser, recent, 1000);
  }

  for (std::size_t index = 0; index < kStorages; ++index)
    chooser.choose(100_B, 1100_B);
  // Plans keep the last storages. Without a plan, they would be offloaded.
  EXPECT_EQ(chooser.choose(100_B, 1100_B), Action::kKeep);
}

/// A shape whose plan changes with the times: its storages can be recomputed, at costs that
/// another measurement exchanges.
class ReplacedPlanTest : public testing::Test {
 protected:
  static StepTimes times(double first, double second) {
    StepTimes times = even_times(7);
    times.recompute = {first, second, 0};
    return times;
  }

  void plan() {
    auto request = shape_.request(terms_);
    if (!request) return;
    request->run();
    shape_.adopt(*std::move(request));
  }

  void SetUp() override {
    shape_.record(nested({100, 100, 100}, 1000));
    shape_.begin(1000_B, terms_);
    shape_.time(times(1, 5));
    plan();
    ASSERT_NE(shape_.plan(), nullptr);
    first_ = shape_.plan()->actions;
    add_steps(10, 8);
    for (int i = 0; i < 3; ++i)
      shape_.refine(times(9, 1), false);
    plan();
    ASSERT_NE(shape_.plan(), nullptr);
    second_ = shape_.plan()->actions;
    ASSERT_NE(first_, second_);
  }

  void add_steps(double seconds, int count) {
    for (int i = 0; i < count; ++i)
      shape_.add_step_duration(seconds);
  }

  const PlanTerms terms_{1150_B};
  Shape shape_{7, {100_B, 100_B, 100_B}, {true, true, false}};
  std::vector<Action> first_;
  std::vector<Action> second_;
};

TEST_F(ReplacedPlanTest, AFasterPlanStays) {
  add_steps(30, 4);  // it maps memory
  add_steps(9, 10);

  EXPECT_EQ(shape_.plan()->actions, second_);
  EXPECT_TRUE(shape_.needs_times());
}

TEST_F(ReplacedPlanTest, ASlowerPlanIsGivenUpForTheOneBefore) {
  const std::uint64_t plans = shape_.plans();
  add_steps(30, 4);
  add_steps(11, 3);
  EXPECT_EQ(shape_.plan()->actions, second_);
  add_steps(11, 1);

  EXPECT_EQ(shape_.plan()->actions, first_);
  EXPECT_EQ(shape_.plans(), plans + 1);
  EXPECT_FALSE(shape_.needs_times());
  EXPECT_FALSE(shape_.request(terms_));
  add_steps(12, 20);  // for good
  EXPECT_EQ(shape_.plan()->actions, first_);
}

TEST_F(ReplacedPlanTest, APlanWithRoomForAddressesIsGivenUpForAFasterOneWithout) {
  const StepCurve curve = nested({100, 100, 100}, 1000);
  EndedStep with_missing{curve, false, false};
  with_missing.budget = terms_.budget;
  with_missing.missing = 50_B;
  const auto end = [&] {
    shape_.end(with_missing);
    plan();
    return shape_.plan()->actions;
  };
  for (int i = 0; i < 100 && shape_.needs_times(); ++i) {
    add_steps(9, 10);
    shape_.refine(times(9, 1), false);
    plan();
  }
  ASSERT_FALSE(shape_.needs_times());  // another plan is tried anyway
  ASSERT_EQ(shape_.plan()->actions, second_);
  add_steps(9, 10);
  ASSERT_NE(end(), second_);

  add_steps(12, 7);
  EXPECT_NE(shape_.plan()->actions, second_);
  add_steps(12, 1);

  EXPECT_EQ(shape_.plan()->actions, second_);
  EXPECT_EQ(end(), second_);  // for good
}

TEST_F(ReplacedPlanTest, AfterAnotherRecordingThePlanBeforeIsNotFollowed) {
  shape_.record(nested({100, 100, 100}, 1000));
  shape_.time(times(9, 1));
  plan();
  add_steps(99, 20);

  EXPECT_EQ(shape_.plan()->actions, second_);
}

}  // namespace
}  // namespace spillway
