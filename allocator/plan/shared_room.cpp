// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/shared_room.h"

#include "allocator/plan/golden_section.h"
#include "allocator/plan/planner.h"

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

BudgetPlan plan_beside(const StepProfile& profile, Bytes within, Bytes model_state, Bytes least) {
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

}  // namespace spillway
