// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/room.h"

#include "allocator/plan/simulator.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

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

namespace {

/// Lists of operands by storage, one behind the other.
class Lists {
 public:
  /// `each(put)` calls put(storage, operand) for all of them, in the same order each time.
  template <typename Each>
  Lists(std::size_t storages, Each each) : first_(storages + 1) {
    each([&](std::size_t storage, std::size_t) { ++first_[storage + 1]; });
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
    operands_.resize(first_.back());
    std::vector<std::size_t> next = first_;
    each([&](std::size_t storage, std::size_t operand) { operands_[next[storage]++] = operand; });
  }

  [[nodiscard]] std::span<const std::size_t> of(std::size_t storage) const {
    return std::span(operands_).subspan(first_[storage], first_[storage + 1] - first_[storage]);
  }

 private:
  std::vector<std::size_t> first_;
  std::vector<std::size_t> operands_;
};

}  // namespace

struct Room::Index {
  explicit Index(const StepProfile& profile)
      : storages(profile.storages.size(),
                 [&](auto put) {
                   const auto& operands = profile.memory.operands;
                   for (std::size_t each = 0; each < operands.size(); ++each)
                     put(operands[each].storage, each);
                 }),
        products(profile.storages.size(), [&](auto put) {
          const auto& operands = profile.memory.operands;
          for (std::size_t each = 0; each < operands.size(); ++each) {
            for (const Operand::Product& product : operands[each].products)
              put(product.storage, each);
          }
        }) {}

  [[nodiscard]] std::span<const std::size_t> of_storage(std::size_t storage) const {
    return storages.of(storage);
  }

  [[nodiscard]] std::span<const std::size_t> for_product(std::size_t product) const {
    return products.of(product);
  }

  Lists storages;
  Lists products;
};

Room::Room(const StepProfile& profile)
    : profile_(profile), peaks_(profile.memory.peaks), first_(profile.storages.size() + 1) {
  for (const RecordedStep::Absence& away : profile.memory.absences)
    ++first_[away.storage + 1];
  std::partial_sum(first_.begin(), first_.end(), first_.begin());
  if (profile.memory.operands.empty()) return;
  operands_ = std::make_shared<const Index>(profile);
  for (const StepProfile::Storage& storage : profile.storages)
    actions_.push_back(storage.rebuild ? Action::kRebuild : Action::kMove);
  in_use_ = operands_in_use(profile, actions_);
}

Room::Room(const StepProfile& profile, const std::vector<Action>& actions) : Room(profile) {
  for (std::size_t storage = 0; storage < actions.size(); ++storage) {
    if (actions[storage] == Action::kKeep) keep(storage, ~0ULL);
    if (actions[storage] == Action::kMove) move(storage);
  }
}

void Room::not_computed(std::size_t product) {
  if (operands_ == nullptr || actions_[product] != Action::kRebuild) return;
  actions_[product] = Action::kMove;
  const auto of = operands_->for_product(product);
  std::vector<std::size_t> changed(of.begin(), of.end());
  while (!changed.empty()) {
    const std::size_t each = changed.back();
    changed.pop_back();
    const Operand& operand = profile_.memory.operands[each];
    if (!in_use_[each] || is_in_use(operand, in_use_, actions_)) continue;
    in_use_[each] = false;
    if (actions_[operand.storage] != Action::kKeep)
      peaks_.take(operand.from, operand.to, operand.bytes);
    // Nor is it computed then from what was there for it.
    const auto further = operands_->for_product(operand.storage);
    changed.insert(changed.end(), further.begin(), further.end());
  }
}

std::uint64_t Room::there_for(std::size_t product, std::size_t place) const {
  if (operands_ == nullptr || actions_[product] != Action::kRebuild) return 0;
  std::uint64_t bytes = 0;
  for (const std::size_t each : operands_->for_product(product)) {
    const Operand& operand = profile_.memory.operands[each];
    const bool there = in_use_[each] && operand.from <= place && place < operand.to;
    if (there && actions_[operand.storage] != Action::kKeep) bytes += operand.bytes;
  }
  return bytes;
}

bool Room::keep(std::size_t storage, std::uint64_t limit) {
  for (std::size_t each = first_[storage]; each < first_[storage + 1]; ++each) {
    const RecordedStep::Absence& away = profile_.memory.absences[each];
    if (peaks_.most(away.from, away.to) + away.bytes > limit) return false;
  }
  const auto& operands = profile_.memory.operands;
  const auto as_operand =
      operands_ != nullptr ? operands_->of_storage(storage) : std::span<const std::size_t>();
  for (const std::size_t each : as_operand) {
    const Operand& operand = operands[each];
    if (!in_use_[each] && peaks_.most(operand.from, operand.to) + operand.bytes > limit)
      return false;
  }
  for (std::size_t each = first_[storage]; each < first_[storage + 1]; ++each) {
    const RecordedStep::Absence& away = profile_.memory.absences[each];
    peaks_.add(away.from, away.to, away.bytes);
  }
  if (operands_ == nullptr) return true;
  for (const std::size_t each : as_operand)
    if (!in_use_[each]) peaks_.add(operands[each].from, operands[each].to, operands[each].bytes);
  not_computed(storage);
  actions_[storage] = Action::kKeep;
  return true;
}

/// Backwards through the stretches, each before the other without a gap, in which the storage is
/// away up to `place`; until `visit`, called with when it may be back, the end and the bytes, says
/// no.
template <typename Visit>
void Room::each_away_before(std::size_t place, std::size_t storage, Visit visit) const {
  const auto& absences = profile_.memory.absences;
  const auto& operands = profile_.memory.operands;
  std::size_t away = first_[storage + 1];
  while (away > first_[storage] && absences[away - 1].to > place)
    --away;
  auto as_operand =
      operands_ != nullptr ? operands_->of_storage(storage) : std::span<const std::size_t>();
  while (!as_operand.empty() && operands[as_operand.front()].to > place)
    as_operand = as_operand.subspan(1);
  for (bool more = true; more;) {
    if (away > first_[storage] && absences[away - 1].to == place) {
      --away;
      const std::size_t leaves = away == first_[storage] ? 1 : 0;
      more = visit(absences[away].from + leaves, place, absences[away].bytes) && leaves == 0;
      place = absences[away].from;
    } else if (!as_operand.empty() && operands[as_operand.front()].to == place &&
               !in_use_[as_operand.front()]) {
      const Operand& operand = operands[as_operand.front()];
      as_operand = as_operand.subspan(1);
      more = visit(operand.from, place, operand.bytes);
      place = operand.from;
    } else {
      return;
    }
  }
}

std::size_t Room::fetch(std::size_t storage, Bytes limit, std::size_t earliest, const Uses& uses) {
  const std::size_t wanted = uses.wanted[storage];
  std::size_t free = wanted;
  each_away_before(wanted, storage, [&](std::size_t from, std::size_t to, std::uint64_t bytes) {
    const std::size_t first = std::max(earliest, from);
    if (bytes > limit.count() || first >= to) return false;
    free = peaks_.free_since(first, to, limit.count() - bytes);
    return free == from;
  });
  const std::size_t back = std::min(uses.next[free], wanted);
  each_away_before(wanted, storage, [&](std::size_t from, std::size_t to, std::uint64_t bytes) {
    if (back < to) peaks_.add(std::max(back, from), to, bytes);
    return back < from;
  });
  return back;
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
