// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/budget_plan.h"
#include "allocator/plan/planner.h"
#include "allocator/plan/simulator.h"
#include "tests/plan/profiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace spillway {
namespace {

using test_steps::budgets_of;
using test_steps::random_step;

constexpr std::uint64_t kCheckSeed = 11;

/// Fetches the last candidate that is offloaded at that event. Peak and time are those of that
/// plan, and the budget is enough for it.
void fetch_last_offloaded(const StepProfile& step,
                          BudgetPlan& plan,
                          Bytes& budget,
                          std::size_t event) {
  const auto last = std::find(plan.actions.rbegin(), plan.actions.rend(), Action::kOffload);
  plan.fetch[static_cast<std::size_t>(plan.actions.rend() - last) - 1] = event;
  const auto allocated = allocated_bytes(step, plan.actions, plan.fetch);
  plan.peak = Bytes{*std::max_element(allocated.begin(), allocated.end())};
  budget = std::max(budget, plan.peak);
  plan.timing = simulate(step, plan, budget);
}

/// What may be wrong with a plan, each in its own way.
const std::vector<std::pair<std::string, std::function<void(StepProfile&, BudgetPlan&, Bytes&)>>>
    kWrongs = {
        {"an action too few",
         [](auto&, auto& plan, auto&) {
           plan.actions.pop_back();
         }},
        {"an action too many",
         [](auto&, auto& plan, auto&) {
           plan.actions.push_back(Action::kKeep);
         }},
        {"one event too few",
         [](auto&, auto& plan, auto&) {
           plan.fetch.pop_back();
         }},
        {"one event too many",
         [](auto&, auto& plan, auto&) {
           plan.fetch.push_back(0);
         }},
        {"no actions",
         [](auto&, auto& plan, auto&) {
           plan.actions.clear();
         }},
        {"a use at another event",
         [](auto&, auto& plan, auto&) {
           ++plan.first_use[7];
         }},
        {"no events",
         [](auto&, auto& plan, auto&) {
           plan.fetch.clear();
         }},
        {"everything kept",
         [](auto&, auto& plan, auto&) {
           plan.actions.assign(plan.actions.size(), Action::kKeep);
         }},
        {"an offloaded one marked kept",
         [](auto&, auto& plan, auto&) {
           *std::find(plan.actions.begin(), plan.actions.end(), Action::kOffload) = Action::kKeep;
         }},
        {"one that is recomputed kept",
         [](auto&, auto& plan, auto&) {
           *std::find(plan.actions.begin(), plan.actions.end(), Action::kRecompute) = Action::kKeep;
         }},
        {"one that cannot be is recomputed",
         [](auto&, auto& plan, auto&) {
           *std::find(plan.actions.begin(), plan.actions.end(), Action::kOffload) =
               Action::kRecompute;
         }},
        {"a recomputed one marked offloaded, without its time",
         [](auto&, auto& plan, auto&) {
           *std::find(plan.actions.begin(), plan.actions.end(), Action::kRecompute) =
               Action::kOffload;
         }},
        {"a kept one marked offloaded, without its peak and time",
         [](auto& step, auto& plan, auto&) {
           for (std::size_t each = 0; each < plan.actions.size(); ++each) {
             if (plan.actions[each] != Action::kKeep || step.candidates[each].recompute) continue;
             plan.actions[each] = Action::kOffload;
             plan.fetch[each] = step.first_use(each);
             return;
           }
         }},
        {"one is fetched after its first use",
         [](auto& step, auto& plan, auto&) {
           const auto first_offload =
               std::find(plan.actions.begin(), plan.actions.end(), Action::kOffload);
           const auto each = static_cast<std::size_t>(first_offload - plan.actions.begin());
           plan.fetch[each] = step.first_use(each) + 1;
         }},
        {"one is fetched where nothing is used",
         [](auto& step, auto& plan, auto& budget) {
           fetch_last_offloaded(
               step,
               plan,
               budget,
               *std::min_element(plan.first_use.begin(), plan.first_use.end()) - 1);
         }},
        {"one is fetched before it is offloaded",
         [](auto& step, auto& plan, auto& budget) {
           step.candidates.push_back({0, {}, {{0, 1, 0, 0, 0, 0}}});  // something is used then
           plan.actions.push_back(Action::kKeep);
           plan.fetch.push_back(1);
           plan.first_use.push_back(1);
           fetch_last_offloaded(step, plan, budget, 1);
         }},
        {"all are fetched at once",
         [](auto&, auto& plan, auto&) {
           for (std::size_t each = 0; each < plan.fetch.size(); ++each)
             plan.fetch[each] = *std::min_element(plan.first_use.begin(), plan.first_use.end());
         }},
        {"a smaller peak than it has",
         [](auto&, auto& plan, auto&) {
           plan.peak = Bytes{plan.peak.count() - 1};
         }},
        {"a larger peak than it has",
         [](auto&, auto& plan, auto&) {
           plan.peak = Bytes{plan.peak.count() + 1};
         }},
        {"a budget below its peak",
         [](auto&, auto& plan, auto& budget) {
           budget = Bytes{plan.peak.count() - 1};
         }},
        {"less time than it takes",
         [](auto&, auto& plan, auto&) {
           plan.timing.compute *= 0.999;
         }},
        {"no stalls",
         [](auto&, auto& plan, auto&) {
           plan.timing.stall_out = -1e-6;
         }},
        {"a step with more allocated bytes",
         [](auto& step, auto&, auto&) {
           for (std::uint64_t& peak : step.memory.peaks)
             peak += 1;
         }},
        {"a slower link",
         [](auto& step, auto&, auto&) {
           step.link.out /= 100;
         }},
        {"a step of other storages",
         [](auto& step, auto&, auto&) {
           step.candidates.pop_back();
         }},
};

TEST(PlanCheckTest, EveryInvalidPlanIsRejectedWithItsReason) {
  std::mt19937_64 random(kCheckSeed);
  StepProfile step = random_step(random, 60);
  step.link = {2000, 2000, 1e-3};  // both are in use
  const Bytes budget = budgets_of(step, 4)[1];
  const BudgetPlan plan = plan_step(step, budget);
  ASSERT_EQ(check_plan(step, plan, budget), std::nullopt);
  for (const Action action : {Action::kKeep, Action::kOffload, Action::kRecompute})
    ASSERT_GT(plan.bytes(step, action), 0u);
  ASSERT_GE(kWrongs.size(), 20u);

  for (const auto& [name, spoil] : kWrongs) {
    StepProfile spoiled_step = step;
    BudgetPlan spoiled = plan;
    Bytes spoiled_budget = budget;
    spoil(spoiled_step, spoiled, spoiled_budget);
    EXPECT_NE(check_plan(spoiled_step, spoiled, spoiled_budget), std::nullopt) << name;
  }
}

}  // namespace
}  // namespace spillway
