// SPDX-License-Identifier: Apache-2.0
// What a device holds beyond its budget, as a chooser plans for it.
#include "tests/plan/offered_steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace spillway {
namespace {

using namespace literals;

/// A step of three storages that holds `most` at its peak.
std::vector<bool> held_step(BudgetChooser& chooser, Bytes most) {
  std::vector<bool> offloads;
  for (int storage = 0; storage < 3; ++storage)
    offloads.push_back(chooser.choose(100_B, 1000_B) == Action::kOffload);
  chooser.set_memory({0_B, 0_B, most});
  chooser.end_step(nested({0, 0, 0}, 1000));
  return offloads;
}

TEST(ReservedMarginTest, ReservedBytesBeyondTheBudgetLowerTheNextPlan) {
  BudgetChooser chooser(1250_B);
  step(chooser, {100, 100, 100}, 1000);
  chooser.time(even_times(7));
  ASSERT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, false, false}));
  held_step(chooser, 1310_B);  // its memory may still be that of the plan before
  EXPECT_EQ(held_step(chooser, 1240_B), (std::vector{true, false, false}));
  held_step(chooser, 1310_B);
  EXPECT_EQ(held_step(chooser, 1310_B), (std::vector{true, false, false}));

  EXPECT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, true, false}));
  // The shortage refers to the requested budget.
  EXPECT_EQ(chooser.planned_last()->budget, 1250_B);
  EXPECT_LE(chooser.planned_last()->plan.peak, 1190_B);
}

/// Whatever steps reserve beyond their plan, as long as it does not grow, they stay within
/// the budget, or to follow the plan that needs least. No plan is remade after that.
TEST(ReservedMarginTest, StepsReachTheBudgetOrTheLeastPlan) {
  for (const std::uint64_t beyond : {0U, 10U, 60U, 150U, 290U, 400U}) {
    BudgetChooser chooser(1250_B);
    step(chooser, {100, 100, 100}, 1000);
    std::vector<bool> offloads;
    const auto reserved = [&] {
      const auto kept =
          static_cast<std::uint64_t>(std::count(offloads.begin(), offloads.end(), false));
      return Bytes{1000 + beyond + 100 * kept};
    };
    offloads = step(chooser, {100, 100, 100}, 1000);
    for (int steps = 0; steps < 20; ++steps)
      offloads = held_step(chooser, reserved());
    const std::vector<bool> settled = offloads;
    EXPECT_TRUE(reserved() <= 1250_B || settled == std::vector({true, true, true})) << beyond;
    for (int steps = 0; steps < 20; ++steps)
      EXPECT_EQ(held_step(chooser, reserved()), settled) << beyond;
  }
}

TEST(ReservedMarginTest, ReservedBytesOfAStepWithoutAPlanAreIgnored) {
  BudgetChooser chooser(1250_B);
  for (int storage = 0; storage < 3; ++storage)
    chooser.choose(100_B, 1000_B);
  chooser.set_memory({0_B, 0_B, 1600_B});
  StepCurve curve = nested({100, 100, 100}, 1000);
  chooser.end_step(curve);

  EXPECT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, false, false}));
}

TEST(PredictedReservedTest, TheBudgetForAllocatedBytesLeavesThemAndAShareOfTheMargin) {
  for (const std::uint64_t begin : {0U, 1000U, 900'000U}) {
    for (const std::uint64_t stranded : {0U, 77U, 40'000U}) {
      const PredictedReserved predicted({Bytes{stranded}, Bytes{begin}, 500_B});
      for (std::uint64_t allocated = begin + 100; allocated < 2'000'000; allocated += 99'991) {
        for (const std::size_t storages : {3U, 20U, 1000U}) {
          const Bytes budget = predicted.budget_for(Bytes{allocated}, storages);
          const Bytes margin = predicted.margin(budget, storages);
          ASSERT_GE(budget - margin, Bytes{allocated});
          const std::uint64_t more = (budget - margin).count() - allocated;
          const std::uint64_t spare = predicted.spare(budget, storages).count();
          EXPECT_LE(more, spare + 4) << begin << " " << stranded;  // what it is of is a little less
          EXPECT_GE(more, spare - spare / 4) << begin << " " << stranded;
        }
      }
    }
  }
}

TEST(PredictedReservedTest, ResidentStoragesCauseNoFragmentation) {
  const PredictedReserved made({0_B, 0_B, 30_B});
  const PredictedReserved stays({10_B, 4700_B, 30_B});
  EXPECT_EQ(made.margin(4800_B, 1000), 133_B);
  EXPECT_EQ(made.margin(4800_B, 2), 60_B);  // a page each
  EXPECT_EQ(stays.margin(4800_B, 1000), 10_B + 16_B);
  EXPECT_EQ(stays.margin(4000_B, 1000), 10_B);
}

TEST(PredictedReservedTest, WithoutAPredictionThereIsNoMargin) {
  EXPECT_EQ(PredictedReserved().margin(4800_B, 9), 0_B);
  EXPECT_EQ(PredictedReserved().budget_for(4800_B, 9), 4800_B);
}

TEST(ReservedMarginTest, PredictedFragmentationCountsFromTheFirstPlanOn) {
  BudgetChooser chooser(1250_B);
  const PredictedReserved predicted({60_B, 1000_B, 100_B});
  chooser.set_prediction(predicted);
  step(chooser, {100, 100, 100}, 1000);
  chooser.time(even_times(7));

  EXPECT_EQ(step(chooser, {100, 100, 100}, 1000), (std::vector{true, true, false}));
  EXPECT_EQ(chooser.planned_last()->budget, 1250_B);
  EXPECT_EQ(chooser.planned_last()->foreseen.margin(1250_B, 3), predicted.margin(1250_B, 3));
}

/// A step that needs most at its end, where no storage is offloaded: its plan keeps all of them.
class NeedsMostAtItsEnd {
 public:
  NeedsMostAtItsEnd(BudgetChooser& chooser, std::uint64_t at_end)
      : chooser_(chooser), at_end_(at_end) {}

  /// What is missing from one that begins with `base`, and in its midst needs `more` than planned.
  std::optional<BudgetShortage> operator()(std::uint64_t base, std::uint64_t more = 0) {
    begin(base);
    return end(base, more);
  }

  void begin(std::uint64_t base) {
    for (int storage = 0; storage < 3; ++storage)
      chooser_.choose(100_B, Bytes{base});
  }

  std::optional<BudgetShortage> end(std::uint64_t base, std::uint64_t more = 0) {
    StepCurve curve = nested({100, 100, 100}, base);
    curve.allocated.back() += at_end_;
    curve.allocated[3] += more;
    curve.optimizer_begin = curve.allocated.size();
    return chooser_.end_step(curve);
  }

 private:
  BudgetChooser& chooser_;
  const std::uint64_t at_end_;
};

TEST(ReservedMarginTest, AStepThatFollowsTheLeastPlanMissesItsBudgetLikeARecordedOne) {
  for (const Bytes budget : {1349_B, 1350_B}) {
    BudgetChooser chooser(budget);
    NeedsMostAtItsEnd step(chooser, 350);
    EXPECT_FALSE(step(950));

    const auto missed = step(1000);

    EXPECT_EQ(missed.has_value(), budget < 1350_B);
    if (missed) {
      EXPECT_EQ(missed->least, 1350_B);
    }
  }
}

TEST(ReservedMarginTest, UnpredictedFragmentationIsNoReasonToMissABudget) {
  const PredictedReserved predicted({60_B, 1000_B, 100_B});
  const Bytes smallest = predicted.budget_for(1350_B, 3);
  BudgetChooser chooser(smallest);
  NeedsMostAtItsEnd step(chooser, 350);
  chooser.set_prediction(predicted);
  EXPECT_FALSE(step(1000));
  step.begin(1000);
  EXPECT_FALSE(chooser.needs_times());  // it is planned
  EXPECT_FALSE(step.end(1000, 900));
}

TEST(ReservedMarginTest, NearTheSmallestBudgetNothingIsResident) {
  for (const Bytes page : {10'000_B, 500_B}) {  // shares are less, or more, than a page each
    const PredictedReserved predicted({60_B, 50'000_B, page});
    const Bytes smallest = predicted.budget_for(100'000_B, 3);
    for (const Bytes budget : {smallest, smallest + 200_B}) {
      ASSERT_GE(budget - predicted.margin(budget, 3), 100'500_B);  // there would be room for one
      BudgetChooser chooser(budget);
      chooser.set_free_at_once();
      chooser.set_prediction(predicted);
      step(chooser, {500, 500, 500}, 100'000);

      const std::vector<bool> offloads = step(chooser, {500, 500, 500}, 100'000);

      EXPECT_EQ(offloads == std::vector({true, true, true}), budget == smallest);
    }
  }
}

}  // namespace
}  // namespace spillway
