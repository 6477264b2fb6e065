// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/budget.h"

#include "allocator/plan/planner.h"
#include "allocator/plan/step_times.h"
#include "tests/plan/steps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace spillway {
namespace {

using namespace literals;

/// What the step needs with these storages offloaded, counted event by event.
std::uint64_t peak_of(const StepCurve& curve, const std::vector<bool>& offloads) {
  std::vector<std::uint64_t> allocated = curve.allocated;
  for (const auto& offloaded : curve.absences) {
    for (std::size_t event = offloaded.from; event < offloaded.to && !offloads[offloaded.storage];
         ++event)
      allocated[event] += offloaded.bytes;
  }
  return *std::max_element(allocated.begin(), allocated.end());
}

std::uint64_t offloaded_bytes(const std::vector<std::uint64_t>& sizes,
                              const std::vector<bool>& offloads) {
  std::uint64_t sum = 0;
  for (std::size_t index = 0; index < sizes.size(); ++index)
    sum += offloads[index] ? sizes[index] : 0;
  return sum;
}

/// A profile without times, whose storages can only be offloaded.
StepProfile profile_of(const StepCurve& curve, const std::vector<std::uint64_t>& sizes) {
  std::vector<Bytes> bytes;
  for (const std::uint64_t size : sizes)
    bytes.emplace_back(size);
  const std::vector<bool> none(sizes.size());
  return spillway::profile_of(RecordedStep(curve, sizes.size()), bytes, none, nullptr);
}

std::vector<bool> offloads(const BudgetPlan& plan) {
  std::vector<bool> offloads;
  for (const Action action : plan.actions)
    offloads.push_back(action == Action::kOffload);
  return offloads;
}

TEST(BudgetPlanTest, RandomStepsMeetTheirBudgetAndALargerBudgetOffloadsNoMore) {
  const std::uint64_t seed = 5;
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 200; ++trial) {
    StepCurve curve;
    for (int event = 0; event < 40; ++event)
      curve.allocated.push_back(random() % 1000);
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
      const std::uint64_t needs = peak_of(curve, offloads(plan));
      ASSERT_EQ(check_plan(step, plan, Bytes{budget}), std::nullopt) << "trial " << trial;
      ASSERT_GE(plan.peak.count(), needs) << "seed " << seed << ", trial " << trial;
      ASSERT_EQ(plan.least, curve.peak());
      ASSERT_LE(plan.peak.count(), std::max(budget, plan.least.count()));
      ASSERT_LE(offloaded_bytes(sizes, offloads(plan)), before)
          << "seed " << seed << ", trial " << trial;
      before = offloaded_bytes(sizes, offloads(plan));
    }
  }
}

TEST(BudgetPlanTest, TheEarliestStoragesAreOffloaded) {
  const StepCurve curve = nested({100, 100, 100, 100}, 1000);

  const BudgetPlan plan = plan_step(profile_of(curve, {100, 100, 100, 100}), 1200_B);

  EXPECT_EQ(offloads(plan), (std::vector{true, true, false, false}));
  EXPECT_EQ(plan.peak, 1200_B);
}

TEST(BudgetPlanTest, StoragesThatLowerNoPeakStayResidentForEveryBudget) {
  StepCurve curve;
  curve.allocated = {10, 50, 10, 1000, 10};
  curve.absences = {{0, 1, 3, 100}, {1, 2, 4, 100}};

  const BudgetPlan plan = plan_step(profile_of(curve, {100, 100}), 1_B);

  EXPECT_EQ(offloads(plan), (std::vector{false, true}));
  EXPECT_EQ(plan.least, 1000_B);
}

TEST(BudgetTest, SizesSharesAndRemaindersAreParsed) {
  EXPECT_EQ(Budget::of("2GiB", "budget").value().on(10_GiB, 8_GiB), 2_GiB);
  EXPECT_EQ(Budget::of("50%", "budget").value().on(10_GiB, 8_GiB), 5_GiB);
  EXPECT_EQ(Budget::of("auto", "budget").value().on(10_GiB, Bytes{1000}), 950_B);
}

TEST(BudgetTest, OtherTextsAreRejectedByName) {
  EXPECT_TRUE(Budget::of("101%", "budget").status().detail().starts_with("budget=101%: "));
  const Status limited = Budget{}.limit_time(0.5, "time_limit");
  EXPECT_TRUE(limited.detail().starts_with("time_limit=0.5: ")) << limited.detail();
}

}  // namespace
}  // namespace spillway
