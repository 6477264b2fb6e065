// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/plan/budget_chooser.h"
#include "allocator/plan/step_times.h"
#include "tests/plan/steps.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace spillway {

/// Offers a step; the curve is of the offloaded storages. `optimizer`: what is allocated in its
/// optimizer_begin.
inline std::vector<bool> step(BudgetChooser& chooser,
                              const std::vector<std::uint64_t>& sizes,
                              std::uint64_t base,
                              std::optional<BudgetShortage>* missed = nullptr,
                              const std::vector<std::uint64_t>& optimizer = {}) {
  std::vector<bool> offloads;
  offloads.reserve(sizes.size());
  for (const std::uint64_t size : sizes)
    offloads.push_back(chooser.choose(Bytes{size}, Bytes{base}) == Action::kOffload);
  StepCurve curve = nested(sizes, base);
  for (const auto& offloaded : std::exchange(curve.absences, {})) {
    if (offloads[offloaded.storage]) {
      curve.absences.push_back(offloaded);
      continue;
    }
    for (std::size_t event = offloaded.from; event < offloaded.to; ++event)
      curve.allocated[event] += offloaded.bytes;
  }
  curve.optimizer_begin = curve.allocated.size();
  curve.allocated.insert(curve.allocated.end(), optimizer.begin(), optimizer.end());
  const auto missing = chooser.end_step(curve, !optimizer.empty());
  if (missed != nullptr) *missed = missing;
  return offloads;
}

/// Times of a step whose four events take a second each, and whose link copies 1000 bytes a second.
inline StepTimes even_times(std::size_t events) {
  StepTimes times;
  for (std::size_t event = 0; event < events; ++event)
    times.marks.push_back({event, static_cast<double>(event)});
  times.end = static_cast<double>(events);
  times.link = {1000, 1000, 0};
  return times;
}

}  // namespace spillway
