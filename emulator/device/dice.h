// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>

namespace spillway::emulator {

/// The decisions of a shuffled schedule, deterministic by seed on every machine. Seeds also differ
/// in eagerness: some run nearly all entries at once, some nearly none.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : numbers_(seed), eagerness_(1 + numbers_() % (kSides - 1)) {}

  bool go_on() { return numbers_() % kSides < eagerness_; }

  bool one_in(std::uint64_t sides) { return numbers_() % sides == 0; }

  /// Requires: count > 0.
  std::size_t below(std::size_t count) { return numbers_() % count; }

 private:
  static constexpr std::uint64_t kSides = 8;

  std::mt19937_64 numbers_;
  std::uint64_t eagerness_;
};

}  // namespace spillway::emulator
