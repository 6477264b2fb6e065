// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstddef>
#include <utility>

namespace spillway {

/// Searches the numbers from 0 to `most` for the one with the least `value`, which falls and then
/// rises, in at most `tries` steps of golden section (J. Kiefer, "Sequential minimax search for a
/// maximum", Proceedings of the AMS 4(3), 1953). `value` remembers what it was called with, and may
/// be called twice with the same number.
template <typename Value>
void golden_section(std::size_t most, int tries, const Value& value) {
  constexpr double kGolden = 0.618034;
  const auto part = [](std::size_t of, double share) {
    return static_cast<std::size_t>(std::lround(static_cast<double>(of) * share));
  };
  std::size_t low = 0;
  std::size_t high = most;
  std::size_t left = low + part(high - low, 1 - kGolden);
  std::size_t right = low + part(high - low, kGolden);
  for (int tried = 0; tried < tries && left < right; ++tried) {
    if (value(left) <= value(right)) {
      high = std::exchange(right, left);
      left = low + part(high - low, 1 - kGolden);
    } else {
      low = std::exchange(left, right);
      right = low + part(high - low, kGolden);
    }
  }
}

}  // namespace spillway
