// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/recorded_step.h"

#include <algorithm>

namespace spillway {

RecordedStep::RecordedStep(const StepCurve& curve, std::size_t count)
    : model_state_uses(curve.model_state_uses), storages(count) {
  edges = {0, curve.allocated.size(), std::min(curve.optimizer_begin, curve.allocated.size())};
  for (const StepCurve::Absence& offloaded : curve.absences) {
    edges.push_back(offloaded.from);
    edges.push_back(offloaded.to);
  }
  operands = operands_of(curve);
  for (const Operand& operand : operands) {
    edges.push_back(operand.from);
    edges.push_back(operand.to);
  }
  for (StepCurve::ModelStateUses& uses : model_state_uses) {
    for (std::size_t* const event : {&uses.first, &uses.last, &uses.from, &uses.to}) {
      *event = std::min(*event, curve.allocated.size());
      edges.push_back(*event);
    }
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  const auto index_of = [&](std::size_t event) {
    return static_cast<std::size_t>(std::lower_bound(edges.begin(), edges.end(), event) -
                                    edges.begin());
  };
  const auto at = [&](std::size_t event) {
    return curve.allocated.begin() + static_cast<std::ptrdiff_t>(event);
  };

  for (std::size_t edge = 0; edge + 1 < edges.size(); ++edge)
    peaks.push_back(*std::max_element(at(edges[edge]), at(edges[edge + 1])));
  for (const StepCurve::Absence& offloaded : curve.absences) {
    if (offloaded.from < offloaded.to) {
      absences.push_back(
          {offloaded.storage, index_of(offloaded.from), index_of(offloaded.to), offloaded.bytes});
    }
  }
  for (Operand& operand : operands) {
    operand.from = index_of(operand.from);
    operand.to = index_of(operand.to);
  }
  std::stable_sort(absences.begin(), absences.end(), [](const Absence& left, const Absence& right) {
    return left.storage < right.storage;
  });
  for (StepCurve::ModelStateUses& uses : model_state_uses) {
    for (std::size_t* const event : {&uses.first, &uses.last, &uses.from, &uses.to})
      *event = index_of(*event);
  }
  operands_only = operands_only_of(curve);
  besides = curve.besides;
  besides.resize(count);
  begin = Bytes{curve.allocated.empty() ? 0 : curve.allocated.front()};
  optimizer_begin = index_of(std::min(curve.optimizer_begin, curve.allocated.size()));
  edges.pop_back();
}

void RecordedStep::begin_with(Bytes allocated) {
  for (std::size_t event = 0; event < std::min(optimizer_begin, peaks.size()); ++event)
    peaks[event] += (allocated - begin).count();
  begin = allocated;
}

void RecordedStep::needed_less(Bytes by) {
  for (std::size_t event = 0; event < std::min(optimizer_begin, peaks.size()); ++event)
    peaks[event] -= std::min(peaks[event], by.count());
}

Bytes RecordedStep::most() const {
  return Bytes{peaks.empty() ? 0 : *std::max_element(peaks.begin(), peaks.end())};
}

Bytes RecordedStep::most_beginning_with(Bytes allocated) const {
  const auto phase =
      peaks.begin() + static_cast<std::ptrdiff_t>(std::min(optimizer_begin, peaks.size()));
  const auto most_of = [](auto from, auto to) {
    return from == to ? 0 : *std::max_element(from, to);
  };
  const std::uint64_t before = most_of(peaks.begin(), phase) + (allocated - begin).count();
  return Bytes{std::max(peaks.begin() == phase ? 0 : before, most_of(phase, peaks.end()))};
}

std::size_t RecordedStep::event_of(std::size_t curve_event) const {
  const auto next = std::upper_bound(edges.begin(), edges.end(), curve_event);
  return next == edges.begin() ? 0 : static_cast<std::size_t>(next - edges.begin()) - 1;
}

}  // namespace spillway
