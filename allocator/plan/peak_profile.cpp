// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/peak_profile.h"

#include "allocator/plan/simulator.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

namespace spillway {

Uses::Uses(std::vector<std::size_t> first_uses, std::size_t events)
    : first_use(std::move(first_uses)) {
  // Counting sort: there are as many events as candidates.
  std::vector<std::size_t> first(events + 2);
  next.assign(events + 1, events);
  for (std::size_t& event : first_use) {
    event = std::min(event, events);
    ++first[event + 1];
    next[event] = event;
  }
  std::partial_sum(first.begin(), first.end(), first.begin());
  in_order.resize(first_use.size());
  for (std::size_t candidate = 0; candidate < first_use.size(); ++candidate)
    in_order[first[first_use[candidate]]++] = candidate;
  for (std::size_t event = events; event-- > 0;)
    if (next[event] != event) next[event] = next[event + 1];
}

PeakProfile::PeakProfile(const StepProfile& profile)
    : profile_(&profile), peaks_(profile.memory.peaks), operands_(profile) {}

PeakProfile::PeakProfile(const StepProfile& profile, const std::vector<Action>& actions)
    : PeakProfile(profile) {
  follow(actions);
}

void PeakProfile::follow(const std::vector<Action>& actions) {
  for (std::size_t candidate = 0; candidate < actions.size(); ++candidate) {
    if (actions[candidate] == Action::kKeep) keep(candidate, ~0ULL);
    if (actions[candidate] == Action::kOffload) offload(candidate);
  }
}

/// Adds or removes the additional bytes of recomputing an operand's candidate later; returns the
/// peak at that event.
std::uint64_t PeakProfile::change_later(std::size_t operand, bool more) {
  const auto [event, bytes] = operands_.later(operand);
  if (bytes == 0 || event >= profile_->events()) return 0;
  peaks_.put(event, event + 1, bytes, more);
  return more ? peaks_.most(event, event + 1) : 0;
}

std::uint64_t PeakProfile::settle_operands(std::size_t candidate, Action action) {
  std::uint64_t most = 0;
  const bool was_computed = operands_.computed(candidate);
  const std::vector<std::size_t> changed = operands_.settle(candidate, action);
  const bool is_computed = operands_.computed(candidate);
  if (was_computed != is_computed) {
    for (const std::size_t each : operands_.of_storage(candidate))
      if (!operands_.in_use(each)) change_later(each, is_computed);
  }
  for (const std::size_t each : changed) {
    const Operand& operand = profile_->memory.operands[each];
    if (operands_.kept(operand.storage)) continue;
    const bool in_use = operands_.in_use(each);
    peaks_.put(operand.from, operand.to, operand.bytes, in_use);
    if (operands_.computed(operand.storage)) most = std::max(most, change_later(each, !in_use));
  }
  return most;
}

std::uint64_t PeakProfile::operand_bytes_for(std::size_t product, std::size_t event) const {
  if (operands_.none() || !operands_.computed(product)) return 0;
  std::uint64_t bytes = 0;
  for (const std::size_t each : operands_.for_product(product)) {
    const Operand& operand = profile_->memory.operands[each];
    const bool there = operands_.in_use(each) && operand.from <= event && event < operand.to;
    if (there && !operands_.kept(operand.storage)) bytes += operand.bytes;
  }
  for (const std::size_t each : operands_.of_storage(product)) {
    const ComputedLater later = operands_.later(each);
    if (!operands_.in_use(each) && later.event == event) bytes += later.bytes;
  }
  return bytes;
}

bool PeakProfile::keep(std::size_t candidate, std::uint64_t limit) {
  for (const Window& window : profile_->candidates[candidate].windows)
    if (peaks_.most(window.from, window.to) + window.bytes > limit) return false;
  const auto& operands = profile_->memory.operands;
  const auto as_operand = operands_.of_storage(candidate);
  for (const std::size_t each : as_operand) {
    const Operand& operand = operands[each];
    if (!operands_.in_use(each) && peaks_.most(operand.from, operand.to) + operand.bytes > limit)
      return false;
  }
  keep_if_offloaded(candidate, true);
  if (settle(candidate, Action::kKeep) <= limit) return true;
  // It was recomputed. Others are then recomputed later, and need more room there than is
  // available.
  settle(candidate, Action::kRecompute);
  keep_if_offloaded(candidate, false);
  return false;
}

void PeakProfile::keep_if_offloaded(std::size_t candidate, bool kept) {
  for (const Window& window : profile_->candidates[candidate].windows)
    peaks_.put(window.from, window.to, window.bytes, kept);
  for (const std::size_t each : operands_.of_storage(candidate)) {
    const Operand& operand = profile_->memory.operands[each];
    if (!operands_.in_use(each)) peaks_.put(operand.from, operand.to, operand.bytes, kept);
  }
}

/// Iterates backwards over the adjacent intervals in which the candidate is offloaded up to
/// `event`. Ends when `visit`, called with the earliest fetch, the end and the bytes, returns
/// false.
template <typename Visit>
void PeakProfile::each_absence_before(std::size_t event, std::size_t candidate, Visit visit) const {
  std::span<const Window> windows = profile_->candidates[candidate].windows;
  const auto& operands = profile_->memory.operands;
  const auto drop_last = [&] {
    windows = windows.first(windows.size() - 1);
  };
  // A product may be recomputed from it within a window.
  while (!windows.empty() && windows.back().from >= event)
    drop_last();
  auto as_operand = operands_.of_storage(candidate);
  while (!as_operand.empty() && operands[as_operand.front()].to > event)
    as_operand = as_operand.subspan(1);
  for (bool more = true; more;) {
    if (!windows.empty() && windows.back().to >= event) {
      const Window& window = windows.back();
      drop_last();
      const bool is_first = windows.empty();
      more = visit(window.from + (is_first ? 1 : 0), event, window.bytes) && !is_first;
      event = window.from;
    } else if (!as_operand.empty() && operands[as_operand.front()].to == event &&
               !operands_.in_use(as_operand.front())) {
      const Operand& operand = operands[as_operand.front()];
      as_operand = as_operand.subspan(1);
      more = visit(operand.from, event, operand.bytes);
      event = operand.from;
    } else {
      return;
    }
  }
}

std::size_t PeakProfile::fetch(std::size_t candidate,
                               Bytes limit,
                               std::size_t earliest,
                               const Uses& uses) {
  const std::size_t first_use = uses.first_use[candidate];
  std::size_t free = first_use;
  each_absence_before(
      first_use, candidate, [&](std::size_t from, std::size_t to, std::uint64_t bytes) {
        const std::size_t first = std::max(earliest, from);
        if (bytes > limit.count() || first >= to) return false;
        free = peaks_.free_since(first, to, limit.count() - bytes);
        return free == from;
      });
  const std::size_t back = std::min(uses.next[free], first_use);
  if (back == first_use) return first_use;
  each_absence_before(
      first_use, candidate, [&](std::size_t from, std::size_t to, std::uint64_t bytes) {
        if (back < to) peaks_.add(std::max(back, from), to, bytes);
        return back < from;
      });
  return back;
}

void complete(const StepProfile& profile,
              const Uses& known,
              PeakProfile& room,
              Bytes budget,
              BudgetPlan& plan) {
  std::optional<Uses> shifted;
  if (!profile.memory.operands.empty()) shifted.emplace(room.first_use(), profile.events());
  const Uses& uses = shifted ? *shifted : known;
  plan.first_use = plan.fetch = uses.first_use;
  std::size_t earliest = uses.next[0];  // fetches begin at uses
  for (const std::size_t candidate : uses.in_order) {
    const std::size_t first_use = uses.first_use[candidate];
    if (plan.actions[candidate] != Action::kOffload || first_use >= profile.events()) continue;
    const Bytes limit{std::max(budget.count(), room.most())};
    plan.fetch[candidate] = room.fetch(candidate, limit, earliest, uses);
    earliest = std::max(earliest, plan.fetch[candidate]);
  }
  plan.budget = budget;
  plan.peak = Bytes{room.most()};
  if (profile.timed()) plan.timing = simulate(profile, plan, budget);
}

}  // namespace spillway
