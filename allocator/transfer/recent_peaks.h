// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"

#include <cstddef>
#include <cstdint>
#include <deque>

namespace spillway {

/// Peaks of host memory in a job's last steps; an arena is sized for them.
///
/// The first step of a shape runs without a plan. A step that was refused memory only estimates its
/// peak. Such a peak is provisional: the next step of the same shape replaces it.
///
/// Pure. Threads: confined; the arena holds its lock.
class RecentPeaks {
 public:
  /// Older steps are dropped. The number is large enough that randomly drawn lengths nearly always
  /// include one close to the longest.
  static constexpr std::size_t kSteps = 256;

  /// `shape`: equal for steps that save storages of the same sizes. `estimated`: the step was
  /// refused memory.
  void add(std::uint64_t shape, Bytes peak, bool estimated);

  /// The largest peak; zero without steps.
  [[nodiscard]] Bytes largest() const;

  /// Whether the steps have more than one shape.
  [[nodiscard]] bool vary() const;

  void clear() { steps_.clear(); }

 private:
  struct Step {
    std::uint64_t shape;
    Bytes peak;
    bool provisional;
  };

  std::deque<Step> steps_;  // the oldest first
};

}  // namespace spillway
