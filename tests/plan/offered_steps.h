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

/// Offers a step; the curve is of what it moved. `optimizer`: what is live in its tail.
inline std::vector<bool> step(BudgetChooser& chooser,
                              const std::vector<std::uint64_t>& sizes,
                              std::uint64_t base,
                              std::optional<BudgetShortage>* missed = nullptr,
                              const std::vector<std::uint64_t>& optimizer = {}) {
  std::vector<bool> moves;
  for (const std::uint64_t size : sizes)
    moves.push_back(chooser.choose(Bytes{size}, Bytes{base}) == Action::kMove);
  StepCurve curve = nested(sizes, base);
  for (const auto& offloaded : std::exchange(curve.absences, {})) {
    if (moves[offloaded.storage]) {
      curve.absences.push_back(offloaded);
      continue;
    }
    for (std::size_t place = offloaded.from; place < offloaded.to; ++place)
      curve.live[place] += offloaded.bytes;
  }
  curve.tail = curve.live.size();
  curve.live.insert(curve.live.end(), optimizer.begin(), optimizer.end());
  const auto missing = chooser.end_step(curve, !optimizer.empty());
  if (missed != nullptr) *missed = missing;
  return moves;
}

/// Times of a step whose four places take a second each, and whose link moves 1000 bytes a second.
inline StepTimes even_times(std::size_t places) {
  StepTimes times;
  for (std::size_t place = 0; place < places; ++place)
    times.marks.push_back({place, static_cast<double>(place)});
  times.end = static_cast<double>(places);
  times.turn = places / 2 + 1;
  times.link = {1000, 1000, 0};
  return times;
}

}  // namespace spillway
