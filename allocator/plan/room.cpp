// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/room.h"

#include "allocator/plan/simulator.h"

#include <algorithm>
#include <numeric>
#include <optional>

namespace spillway {

Uses::Uses(const StepProfile& profile) {
  for (const StepProfile::Storage& storage : profile.storages)
    wanted.push_back(storage.wanted);
  order(profile.places());
}

Uses::Uses(const StepProfile& profile, const std::vector<Action>& actions)
    : wanted(wanted_places(profile, actions)) {
  order(profile.places());
}

void Uses::order(std::size_t places) {
  // By counting: there are as many places as storages.
  std::vector<std::size_t> first(places + 2);
  next.assign(places + 1, places);
  for (std::size_t& place : wanted) {
    place = std::min(place, places);
    ++first[place + 1];
    next[place] = place;
  }
  std::partial_sum(first.begin(), first.end(), first.begin());
  in_order.resize(wanted.size());
  for (std::size_t storage = 0; storage < wanted.size(); ++storage)
    in_order[first[wanted[storage]]++] = storage;
  for (std::size_t place = places; place-- > 0;)
    if (next[place] != place) next[place] = next[place + 1];
}

Room::Room(const StepProfile& profile)
    : profile_(profile), peaks_(profile.memory.peaks), first_(profile.storages.size() + 1) {
  for (const RecordedStep::Absence& away : profile.memory.absences)
    ++first_[away.storage + 1];
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  const auto& operands = profile.memory.operands;
  if (operands.empty()) return;
  for (const StepProfile::Storage& storage : profile.storages)
    actions_.push_back(storage.rebuild ? Action::kRebuild : Action::kMove);
  in_use_ = operands_in_use(profile, actions_);
  rows_for_.resize(profile.storages.size());
  for (std::size_t row = 0; row < operands.size(); ++row) {
    rows_for_[operands[row].product].push_back(row);
    if (!in_use_[row]) peaks_.take(operands[row].from, operands[row].to, operands[row].bytes);
  }
}

Room::Room(const StepProfile& profile, const std::vector<Action>& actions) : Room(profile) {
  for (std::size_t storage = 0; storage < actions.size(); ++storage) {
    if (actions[storage] == Action::kKeep) keep(storage, ~0ULL);
    if (actions[storage] == Action::kMove) move(storage);
  }
}

std::pair<std::size_t, std::size_t> Room::rows_of(std::size_t storage) const {
  const auto& operands = profile_.memory.operands;
  const auto first = std::lower_bound(
      operands.begin(), operands.end(), storage, [](const Operand& each, std::size_t before) {
        return each.storage < before;
      });
  auto last = first;
  while (last != operands.end() && last->storage == storage)
    ++last;
  return {static_cast<std::size_t>(first - operands.begin()),
          static_cast<std::size_t>(last - operands.begin())};
}

void Room::not_computed(std::size_t product) {
  if (actions_.empty() || actions_[product] != Action::kRebuild) return;
  actions_[product] = Action::kMove;
  std::vector<std::size_t> rows = rows_for_[product];
  while (!rows.empty()) {
    const std::size_t row = rows.back();
    rows.pop_back();
    if (!in_use_[row]) continue;
    in_use_[row] = false;
    const Operand& operand = profile_.memory.operands[row];
    if (actions_[operand.storage] != Action::kKeep)
      peaks_.take(operand.from, operand.to, operand.bytes);
    // Nor is it computed then from what was there for it.
    for (const std::size_t each : rows_for_[operand.storage])
      if (profile_.memory.operands[each].within == row) rows.push_back(each);
  }
}

std::uint64_t Room::there_for(std::size_t product, std::size_t place) const {
  if (actions_.empty()) return 0;
  std::uint64_t bytes = 0;
  for (const std::size_t row : rows_for_[product]) {
    const Operand& operand = profile_.memory.operands[row];
    const bool there = in_use_[row] && operand.from <= place && place < operand.to;
    if (there && actions_[operand.storage] != Action::kKeep) bytes += operand.bytes;
  }
  return bytes;
}

bool Room::keep(std::size_t storage, std::uint64_t limit) {
  for (std::size_t each = first_[storage]; each < first_[storage + 1]; ++each) {
    const RecordedStep::Absence& away = profile_.memory.absences[each];
    if (peaks_.most(away.from, away.to) + away.bytes > limit) return false;
  }
  const auto [row, end] = actions_.empty() ? std::pair<std::size_t, std::size_t>() : rows_of(storage);
  for (std::size_t each = row; each < end; ++each) {
    const Operand& operand = profile_.memory.operands[each];
    if (in_use_[each]) continue;
    if (peaks_.most(operand.from, operand.to) + operand.bytes > limit) return false;
  }
  for (std::size_t each = first_[storage]; each < first_[storage + 1]; ++each) {
    const RecordedStep::Absence& away = profile_.memory.absences[each];
    peaks_.add(away.from, away.to, away.bytes);
  }
  for (std::size_t each = row; each < end; ++each) {
    const Operand& operand = profile_.memory.operands[each];
    if (!in_use_[each]) peaks_.add(operand.from, operand.to, operand.bytes);
  }
  if (actions_.empty()) return true;
  not_computed(storage);
  actions_[storage] = Action::kKeep;
  return true;
}

std::size_t Room::fetch(std::size_t storage, Bytes limit, std::size_t earliest, const Uses& uses) {
  const auto& absences = profile_.memory.absences;
  const auto& operands = profile_.memory.operands;
  std::size_t place = uses.wanted[storage];
  std::size_t away = first_[storage + 1];
  while (away > first_[storage] && absences[away - 1].to > place)
    --away;
  auto [row, end] = actions_.empty() ? std::pair<std::size_t, std::size_t>() : rows_of(storage);
  while (end > row && operands[end - 1].to > place)
    --end;
  // Backwards through the stretches in which it is away, one before the other.
  for (;;) {
    std::size_t from = 0;
    std::uint64_t bytes = 0;
    if (away > first_[storage] && absences[away - 1].to == place) {
      --away;
      const bool leaves = away == first_[storage];
      from = absences[away].from + (leaves ? 1 : 0);
      bytes = absences[away].bytes;
    } else if (end > row && operands[end - 1].to == place && !in_use_[end - 1]) {
      --end;
      from = operands[end].from;
      bytes = operands[end].bytes;
    } else {
      return place;
    }
    const std::size_t first = std::max(earliest, from);
    if (bytes > limit.count() || first >= place) return place;
    const std::size_t free = peaks_.free_since(first, place, limit.count() - bytes);
    const std::size_t back = std::min(uses.next[free], place);
    peaks_.add(back, place, bytes);
    place = back;
    if (back > from) return place;
  }
}

void complete(
    const StepProfile& profile, const Uses& known, Room& room, Bytes budget, BudgetPlan& plan) {
  std::optional<Uses> shifted;
  if (!profile.memory.operands.empty()) shifted.emplace(profile, plan.actions);
  const Uses& uses = shifted ? *shifted : known;
  plan.fetch = uses.wanted;
  std::size_t earliest = profile.turn;
  for (const std::size_t storage : uses.in_order) {
    const std::size_t wanted = uses.wanted[storage];
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
