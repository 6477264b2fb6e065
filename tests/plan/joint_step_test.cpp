// SPDX-License-Identifier: Apache-2.0
// Steps that are planned together with the model state that streams beside them.
#include "allocator/plan/joint_step.h"

#include "allocator/plan/plan_request.h"
#include "allocator/plan/planner.h"
#include "allocator/plan/shared_room.h"
#include "allocator/plan/simulator.h"
#include "tests/plan/profiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace spillway {
namespace {

using test_steps::random_step;
using Uses = StepCurve::ModelStateUses;

constexpr int kTrials = 60;

/// A random step that uses each of some storages of the model state in both of its halves, or, if
/// they are written, in the second one only.
StepProfile random_joint_step(std::mt19937_64& random, std::size_t storages) {
  StepProfile step = random_step(random, 10 + random() % 30);
  const std::size_t half = step.events() / 2;
  for (std::size_t storage = 0; storage < storages; ++storage) {
    const std::size_t forward = random() % half;
    const std::size_t backward = step.events() - 1 - forward;
    const std::uint64_t bytes = 20 + random() % 200;
    Uses uses{storage, bytes};
    uses.written = random() % 3 == 0;
    uses.first = uses.written ? backward : forward;
    uses.last = backward + 1;
    if (!uses.written) {
      uses.from = forward + 1;
      uses.to = backward;
      uses.before = 1 + random() % 3;
    }
    step.memory.model_state_uses.push_back(uses);
  }
  return step;
}

bool is_used(const Uses& uses, std::size_t event) {
  return event >= uses.first && event < uses.last && !(event >= uses.from && event < uses.to);
}

/// The bytes of the model state that each event of the step uses, and those of all of it.
std::vector<std::uint64_t> used_bytes(const StepProfile& step) {
  std::vector<std::uint64_t> used(step.events());
  for (const Uses& uses : step.memory.model_state_uses)
    for (std::size_t event = 0; event < used.size(); ++event)
      if (is_used(uses, event)) used[event] += uses.bytes;
  return used;
}

TEST(JointStepTest, WhatStaysIsAddedToEachEventAndWhatLeavesToThoseThatUseIt) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < kTrials; ++trial) {
    const StepProfile step = random_joint_step(random, 12);
    const JointStep joint(step);
    const std::vector<std::uint64_t> used = used_bytes(step);
    const std::size_t all = joint.profile().candidates.size();
    const auto keep = allocated_bytes(step, std::vector(step.candidates.size(), Action::kKeep));
    const auto kept = allocated_bytes(joint.profile(), std::vector(all, Action::kKeep));
    std::vector<Action> actions(all, Action::kOffload);
    std::fill_n(actions.begin(), step.candidates.size(), Action::kKeep);
    const auto left = allocated_bytes(joint.profile(), actions);
    for (std::size_t event = 0; event < step.events(); ++event) {
      ASSERT_EQ(kept[event], keep[event] + joint.model_state().count()) << trial;
      ASSERT_EQ(left[event], keep[event] + used[event]) << "trial " << trial << ' ' << event;
    }
  }
}

TEST(JointStepTest, OnlyWhatIsWrittenIsCopiedOut) {
  std::mt19937_64 random(2);
  const StepProfile step = random_joint_step(random, 40);
  const JointStep joint(step);
  std::uint64_t out = 0;
  std::uint64_t in = 0;
  for (std::size_t each = step.candidates.size(); each < joint.profile().candidates.size();
       ++each) {
    for (const Window& window : joint.profile().candidates[each].windows) {
      out += window.out;
      in += window.in;
    }
  }
  std::uint64_t written = 0;
  std::uint64_t fetched = 0;  // for the first use, and again for those after the longest time
  for (const Uses& uses : step.memory.model_state_uses) {
    if (uses.written && uses.last < step.events()) written += uses.bytes;
    if (uses.first != 0) fetched += uses.bytes;
    if (uses.from < uses.to) fetched += uses.bytes;
  }
  EXPECT_GT(written, 0U);
  EXPECT_EQ(out, written);
  EXPECT_EQ(in, fetched);
}

TEST(JointStepTest, APlanIsTheSameAfterItsPartsAreSplitAndJoined) {
  std::mt19937_64 random(3);
  std::size_t leaves = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    const StepProfile step = random_joint_step(random, 12);
    const JointStep joint(step);
    const Bytes least = least_peak(joint.profile());
    const Bytes within = least + Bytes{random() % (joint.model_state().count() + 1)};
    const BudgetPlan plan = plan_step(joint.profile(), within);
    ASSERT_EQ(check_plan(joint.profile(), plan, plan.budget), std::nullopt) << trial;

    const BudgetPlan part = joint.split(plan);
    const BudgetPlan again = joint.join(part);

    leaves += part.model_state.size();
    EXPECT_EQ(part.actions.size(), step.candidates.size());
    EXPECT_EQ(again.actions, plan.actions);
    EXPECT_EQ(again.fetch, plan.fetch);
    EXPECT_EQ(again.first_use, plan.first_use);
    EXPECT_EQ(again.peak, plan.peak);
    EXPECT_GE(again.budget, plan.budget);
    EXPECT_LE(part.peak, part.budget);
  }
  EXPECT_GT(leaves, 0U);
}

TEST(JointStepTest, AStepPlannedTogetherWithWhatStreamsTakesNoLonger) {
  std::mt19937_64 random(4);
  double together = 0;
  double apart = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    StepProfile step = random_joint_step(random, 20);
    // The link is about as busy with the model state as the device is with computing.
    double seconds = 0;
    for (const double each : step.seconds)
      seconds += each;
    const JointStep both(step);
    step.link.in = step.link.out = 2 * static_cast<double>(both.model_state().count()) / seconds;
    for (Candidate& candidate : step.candidates)
      if (!candidate.windows.empty())
        candidate.recompute = static_cast<double>(random() % 9) * 1e-3;
    const JointStep joint(step);
    const Bytes all = joint.model_state();
    const Bytes within = least_peak(joint.profile()) + Bytes{all.count() / 4};
    const auto seconds_of = [&](const BudgetPlan& plan) {
      return seconds_beside(step, plan, within, {all, true});
    };

    const BudgetPlan plan = plan_beside(step, within, {all, true}, least_peak(step));
    BudgetPlan other = plan_beside(step, within, {all, false}, least_peak(step));
    // All of the model state leaves beside it.
    BudgetPlan leaving = joint.split(plan_step(joint.profile(), Bytes{}));
    other.model_state = leaving.model_state;
    other.timing = simulate_beside(step, other, within);

    together += seconds_of(plan);
    apart += seconds_of(other);
    EXPECT_LE(plan.timing.total(), other.timing.total() * 1.25) << "trial " << trial;
  }
  EXPECT_LT(together, apart);
}

TEST(JointStepTest, ARecordedStepHasTheUsesInItsOwnEvents) {
  StepCurve curve;
  curve.allocated.assign(100, 1000);
  curve.absences.push_back({0, 20, 80, 50});
  Uses uses{7, 30, 10, 90, 30, 70, 1, true};
  curve.model_state_uses = {uses};

  const RecordedStep step(curve, 1);

  ASSERT_EQ(step.model_state_uses.size(), 1U);
  const Uses& found = step.model_state_uses.front();
  EXPECT_EQ(found.first, step.event_of(10));
  EXPECT_EQ(found.from, step.event_of(30));
  EXPECT_EQ(found.to, step.event_of(70));
  EXPECT_EQ(found.last, step.event_of(90));
  // The step's events are cut there.
  for (const std::size_t event : {10U, 30U, 70U, 90U})
    EXPECT_NE(step.event_of(event), step.event_of(event - 1));
  EXPECT_EQ(found.storage, 7U);
  EXPECT_TRUE(found.written);
}

/// A forward pass that saves storages, and a backward pass of the same duration that fetches a
/// storage of the model state for each of its events. The link is just fast enough for these.
TEST(JointStepTest, WhatTheLinkCannotCopyBesideModelStateIsRecomputed) {
  constexpr std::size_t kStorages = 20;
  constexpr std::uint64_t kBytes = 1000;
  StepCurve curve;
  curve.allocated.assign(2 * kStorages + 2, 1000);
  for (std::size_t storage = 0; storage < kStorages; ++storage) {
    const std::size_t use = 2 * kStorages + 1 - storage;
    curve.absences.push_back({storage, storage + 1, use, kBytes});
    Uses uses{storage, kBytes, storage, use, storage + 1, use - 1, 1, false};
    curve.model_state_uses.push_back(uses);
  }
  StepProfile step{RecordedStep(curve, kStorages)};
  step.seconds.assign(step.events(), 1.0);
  step.link = {kBytes, kBytes, 0};
  for (Candidate& candidate : step.candidates) {
    candidate.windows.front().out = candidate.windows.front().in = kBytes;
    candidate.recompute = 1.1;  // worthwhile only where the link is busy
  }
  const JointStep joint(step);
  const Bytes room{3 * kBytes};  // to fetch ahead
  const Bytes within = least_peak(joint.profile()) + room;

  const BudgetPlan beside =
      plan_beside(step, within, {joint.model_state(), true}, least_peak(step));
  const BudgetPlan alone = plan_step(step, least_peak(step) + room);

  EXPECT_GT(alone.bytes(step, Action::kOffload), kStorages * 3 / 4 * kBytes);
  EXPECT_GT(beside.bytes(step, Action::kOffload), 0U);
  EXPECT_LT(beside.bytes(step, Action::kOffload), kStorages * 3 / 4 * kBytes);
}

TEST(JointStepTest, APlanIsNoSlowerWhenItIsSimulatedAgain) {
  std::mt19937_64 random(6);
  for (int trial = 0; trial < kTrials; ++trial) {
    const StepProfile step = random_joint_step(random, 12);
    const JointStep joint(step);
    const Bytes within = least_peak(joint.profile()) + Bytes{joint.model_state().count() / 3};
    const BudgetPlan plan =
        plan_beside(step, within, {joint.model_state(), true}, least_peak(step));
    const double again = simulate_beside(step, plan, within).total();
    EXPECT_LE(again, plan.timing.total() * (1 + 1e-9)) << trial;
    EXPECT_GE(again, plan.timing.total() * 0.8) << trial;  // it may have had less room
    EXPECT_EQ(plan.least, least_peak(step)) << trial;
    EXPECT_LE(joint.join(plan).peak, within) << trial;
  }
}

TEST(JointStepTest, ModelStateThatIsUsedAllTheTimeDoesNotKeepAStepFromAPlan) {
  std::mt19937_64 random(7);
  for (int trial = 0; trial < kTrials; ++trial) {
    StepProfile step = random_joint_step(random, 12);
    for (Uses& uses : step.memory.model_state_uses)
      uses = {uses.storage, uses.bytes, 0, step.events()};
    const Bytes least = least_peak(step);
    const Bytes all = JointStep(step).model_state();
    const BudgetPlan plan = plan_beside(step, least, {all, true}, least);
    EXPECT_LE(plan.peak, least) << trial;
  }
}

TEST(JointStepTest, APlanForOtherTermsIsNotFollowedAgain) {
  std::mt19937_64 random(8);
  for (int trial = 0; trial < kTrials; ++trial) {
    const StepProfile step = random_joint_step(random, 12);
    const JointStep joint(step);
    const Bytes within = least_peak(joint.profile()) + Bytes{joint.model_state().count() / 3};
    const auto run = [&](bool streams, std::optional<BudgetPlan> before) {
      PlanRequest request;
      request.terms.budget = request.allowed = within;
      request.terms.model_state = {joint.model_state(), streams};
      request.profile = std::make_shared<const StepProfile>(step);
      request.sizes.resize(step.candidates.size());
      request.before = std::move(before);
      request.run();
      return request.plan;
    };
    const BudgetPlan together = run(true, std::nullopt);
    const BudgetPlan apart = run(false, std::nullopt);
    EXPECT_EQ(run(true, apart).model_state, together.model_state) << trial;
    EXPECT_TRUE(run(false, together).model_state.empty()) << trial;
  }
}

/// What the step saves ends before the gradients are copied out.
TEST(JointStepTest, TheForwardPassEndsWhereItDoesAlone) {
  std::mt19937_64 random(9);
  const StepProfile step = random_joint_step(random, 30);
  EXPECT_EQ(JointStep(step).profile().end_of_saving(), step.end_of_saving());
}

TEST(JointStepTest, WithoutUsesOrStreamsTheStepIsPlannedAlone) {
  std::mt19937_64 random(5);
  StepProfile step = random_joint_step(random, 12);
  const Bytes all = JointStep(step).model_state();
  const Bytes least = least_peak(step);
  const Bytes within = least + all;
  const BudgetPlan alone = plan_beside(step, within, {all, false}, least);
  EXPECT_TRUE(alone.model_state.empty());
  step.memory.model_state_uses.clear();
  const BudgetPlan unknown = plan_beside(step, within, {all, true}, least);
  EXPECT_EQ(unknown.actions, alone.actions);
  EXPECT_TRUE(unknown.model_state.empty());
}

}  // namespace
}  // namespace spillway
