// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/plan/range_peaks.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace spillway {

/// The bytes that a step needs beside its parameters and the optimizer's states, by the uses of
/// managed storages (AccessOrder). It predicts how much room the next step leaves for what is
/// prefetched.
/// Threads: confined; the caller holds its lock.
class RecordedNeed {
 public:
  /// The step has made that many uses. It needs `now` bytes at the last one, and needed at most
  /// `most` since the one before.
  void note(std::size_t uses, Bytes now, Bytes most) {
    if (uses == 0) return;
    if (!running_.until_next.empty()) {
      running_.until_next.back() = std::max(running_.until_next.back(), most.count());
    }
    running_.at_use.resize(uses, now.count());
    running_.until_next.resize(uses, now.count());
  }

  /// The step has ended: it predicts the next one. A step without uses is ignored.
  void end_step() {
    if (running_.at_use.empty()) return;
    most_.emplace(running_.until_next);
    last_ = std::exchange(running_, {});
  }

  /// By how much the need rises from one use of the step until another one; both begin at 0.
  [[nodiscard]] Bytes growth(std::size_t from, std::size_t to) const {
    if (from >= last_.at_use.size()) return {};
    const std::size_t end = std::min(to, last_.at_use.size());
    return saturating_sub(Bytes{most_->most(from, end)}, Bytes{last_.at_use[from]});
  }

 private:
  struct Step {
    std::vector<std::uint64_t> at_use;      // by use
    std::vector<std::uint64_t> until_next;  // the most between it and the next use
  };

  Step running_;
  Step last_;
  std::optional<RangePeaks> most_;  // of last_.until_next
};

}  // namespace spillway
