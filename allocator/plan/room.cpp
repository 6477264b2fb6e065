// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/room.h"

#include "allocator/plan/simulator.h"

#include <algorithm>
#include <numeric>

namespace spillway {

Uses::Uses(const StepProfile& profile)
    : in_order(profile.storages.size()), next(profile.places() + 1, profile.places()) {
  std::iota(in_order.begin(), in_order.end(), std::size_t{0});
  std::stable_sort(in_order.begin(), in_order.end(), [&](std::size_t left, std::size_t right) {
    return profile.storages[left].wanted < profile.storages[right].wanted;
  });
  for (const StepProfile::Storage& storage : profile.storages) {
    const std::size_t wanted = std::min(storage.wanted, profile.places());
    next[wanted] = wanted;
  }
  for (std::size_t place = profile.places(); place-- > 0;)
    if (next[place] != place) next[place] = next[place + 1];
}

Room::Room(const StepProfile& profile)
    : profile_(profile), peaks_(profile.memory.peaks), first_(profile.storages.size() + 1) {
  for (const RecordedStep::Absence& away : profile.memory.absences)
    ++first_[away.storage + 1];
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
}

Room::Room(const StepProfile& profile, const std::vector<Action>& actions) : Room(profile) {
  for (std::size_t storage = 0; storage < actions.size(); ++storage)
    if (actions[storage] == Action::kKeep) keep(storage, ~0ULL);
}

bool Room::keep(std::size_t storage, std::uint64_t limit) {
  for (std::size_t each = first_[storage]; each < first_[storage + 1]; ++each) {
    const RecordedStep::Absence& away = profile_.memory.absences[each];
    if (peaks_.most(away.from, away.to) + away.bytes > limit) return false;
  }
  for (std::size_t each = first_[storage]; each < first_[storage + 1]; ++each) {
    const RecordedStep::Absence& away = profile_.memory.absences[each];
    peaks_.add(away.from, away.to, away.bytes);
  }
  return true;
}

std::size_t Room::fetch(std::size_t storage, Bytes limit, std::size_t earliest, const Uses& uses) {
  const std::size_t wanted = profile_.storages[storage].wanted;
  std::size_t place = wanted;
  for (std::size_t each = first_[storage]; each < first_[storage + 1]; ++each) {
    const RecordedStep::Absence& away = profile_.memory.absences[each];
    if (away.to > wanted || away.bytes > limit.count()) continue;
    const std::size_t from = std::max(earliest, away.from + 1);
    if (from >= away.to) continue;
    const std::size_t free = peaks_.free_since(from, away.to, limit.count() - away.bytes);
    place = std::min(uses.next[free], away.to);
    peaks_.add(place, away.to, away.bytes);
  }
  return place;
}

void complete(
    const StepProfile& profile, const Uses& uses, Room& room, Bytes budget, BudgetPlan& plan) {
  plan.fetch.assign(plan.actions.size(), 0);
  std::size_t earliest = profile.turn;
  for (const std::size_t storage : uses.in_order) {
    const std::size_t wanted = profile.storages[storage].wanted;
    plan.fetch[storage] = wanted;
    if (plan.actions[storage] != Action::kMove || wanted >= profile.places()) continue;
    const Bytes limit{std::max(budget.count(), room.most())};
    plan.fetch[storage] = std::min(wanted, room.fetch(storage, limit, earliest, uses));
    earliest = std::max(earliest, plan.fetch[storage]);
  }
  plan.budget = budget;
  plan.peak = Bytes{room.most()};
  if (profile.timed()) plan.timing = simulate(profile, plan, budget);
}

}  // namespace spillway
