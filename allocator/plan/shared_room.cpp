// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/shared_room.h"

#include "allocator/plan/golden_section.h"
#include "allocator/plan/joint_step.h"
#include "allocator/plan/planner.h"
#include "allocator/plan/simulator.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace spillway {
namespace {

/// Part of the model state that stays beside any plan.
constexpr std::uint64_t kStays = 8;
/// Rooms that may be tried.
constexpr std::size_t kRooms = 13;
/// Steps of the search, which tries a room or two in each.
constexpr int kSteps = 4;

/// Whether the step is planned together with its model state.
bool is_joint(const StepProfile& profile, const ModelStateTerms& model_state) {
  return model_state.streams && !profile.memory.model_state_uses.empty();
}

/// Whether that plan has been made so.
bool is_joint(const BudgetPlan& plan) {
  return !plan.model_state.empty();
}

}  // namespace

double seconds_of_model_state(const StepProfile& profile,
                              Bytes peak,
                              Bytes within,
                              Bytes model_state) {
  if (profile.link.out <= 0 || profile.link.in <= 0) return 0;
  const Bytes stays = saturating_sub(within, peak);
  const auto moves = static_cast<double>(saturating_sub(model_state, stays).count());
  return moves / profile.link.out + moves / profile.link.in;
}

namespace {

BudgetPlan with_best_room(const StepProfile& profile,
                          Bytes within,
                          Bytes model_state,
                          Bytes least) {
  const Bytes first = std::max(least, saturating_sub(within, model_state));
  const Bytes stays{model_state.count() / kStays};
  const Bytes range = saturating_sub(saturating_sub(within, stays), first);
  std::optional<BudgetPlan> found;
  double fastest = 0;
  std::array<std::optional<double>, kRooms> tried{};
  const auto seconds = [&](std::size_t room) {
    if (tried.at(room)) return *tried.at(room);
    BudgetPlan plan = plan_step(profile, first + Bytes{range.count() / (kRooms - 1) * room});
    const double time =
        plan.timing.total() + seconds_of_model_state(profile, plan.peak, within, model_state);
    tried.at(room) = time;
    if (!found || time < fastest) {
      fastest = time;
      found = std::move(plan);
    }
    return time;
  };
  seconds(0);
  const bool costs = found->timing.total() > found->timing.compute;
  if (costs && !range.zero()) golden_section(kRooms - 1, kSteps, seconds);
  return *std::move(found);
}

}  // namespace

BudgetPlan plan_beside(const StepProfile& profile,
                       Bytes within,
                       const ModelStateTerms& model_state,
                       Bytes least) {
  if (!is_joint(profile, model_state))
    return with_best_room(profile, within, model_state.bytes, least);
  const JointStep joint(profile);
  const Bytes others = saturating_sub(model_state.bytes, joint.model_state());
  const Bytes joint_least = least_peak(joint.profile());
  // Storages with many uses count as used in between.
  if (joint_least > within) return with_best_room(profile, within, model_state.bytes, least);
  BudgetPlan plan = joint.split(with_best_room(joint.profile(), within, others, joint_least));
  plan.least = least;
  return plan;
}

bool is_planned_alike(const StepProfile& profile,
                      const BudgetPlan& plan,
                      const ModelStateTerms& model_state) {
  return is_joint(plan) == is_joint(profile, model_state);
}

StepTiming simulate_beside(const StepProfile& profile, const BudgetPlan& plan, Bytes budget) {
  if (!is_joint(plan)) return simulate(profile, plan, budget);
  const JointStep joint(profile);
  const BudgetPlan both = joint.join(plan);
  return simulate(joint.profile(), both, std::max(both.peak, budget));
}

double seconds_beside(const StepProfile& profile,
                      const BudgetPlan& plan,
                      Bytes within,
                      const ModelStateTerms& model_state) {
  const double seconds = plan.timing.total();
  if (!is_joint(plan))
    return seconds + seconds_of_model_state(profile, plan.peak, within, model_state.bytes);
  const JointStep joint(profile);
  const Bytes others = saturating_sub(model_state.bytes, joint.model_state());
  return seconds + seconds_of_model_state(joint.profile(), joint.join(plan).peak, within, others);
}

}  // namespace spillway
