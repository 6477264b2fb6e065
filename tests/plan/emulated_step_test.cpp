// SPDX-License-Identifier: Apache-2.0
#include "tests/plan/emulated_step.h"

#include "allocator/plan/budget_plan.h"
#include "allocator/plan/step_times.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace spillway {
namespace {

using test_steps::EmulatedGraph;
using test_steps::EmulatedStep;

constexpr std::uint64_t kSeed = 5;

/// The peak that a recorded step predicts for other actions, and the peak of a step with them.
struct Prediction {
  std::uint64_t predicted = 0;
  std::uint64_t needed = 0;
};

std::vector<Prediction> predictions_of(std::mt19937_64& random, bool with_working) {
  const EmulatedGraph graph = EmulatedGraph::random(random, with_working);
  std::vector<bool> recomputable;
  std::vector<Action> offloaded;
  const EmulatedStep all_move(graph, {});
  for (const std::size_t node : all_move.saved()) {
    recomputable.push_back(graph.recomputable[node]);
    offloaded.push_back(graph.recomputable[node] ? Action::kRecompute : Action::kOffload);
  }
  const EmulatedStep recorded(graph, offloaded);
  const std::vector<Bytes> sizes(offloaded.size(), Bytes{EmulatedStep::kBytes});
  const StepProfile profile = profile_of(
      RecordedStep(recorded.curve(), offloaded.size()), sizes, recomputable, /*times=*/nullptr);

  std::vector<Prediction> all;
  for (int each = 0; each < 20; ++each) {
    std::vector<Action> actions = offloaded;
    for (Action& action : actions) {
      const auto one = random() % 4;
      if (one < 2) action = one == 0 ? Action::kOffload : Action::kKeep;
    }
    const auto allocated = allocated_bytes(profile, actions);
    const EmulatedStep step(graph, actions);
    all.push_back(
        {*std::max_element(allocated.begin(), allocated.end()), step.curve().peak().count()});
  }
  return all;
}

TEST(EmulatedStepTest, ARecordingPredictsThePeakForAnyActions) {
  std::mt19937_64 random(kSeed);
  for (int trial = 0; trial < 300; ++trial) {
    for (const Prediction& each : predictions_of(random, false))
      ASSERT_EQ(each.predicted, each.needed) << "trial " << trial;
  }
}

TEST(EmulatedStepTest, TemporaryMemoryOfRecomputationIsCountedAtEveryEvent) {
  std::mt19937_64 random(kSeed);
  for (int trial = 0; trial < 300; ++trial) {
    for (const Prediction& each : predictions_of(random, true))
      ASSERT_GE(each.predicted, each.needed) << "trial " << trial;
  }
}

}  // namespace
}  // namespace spillway
