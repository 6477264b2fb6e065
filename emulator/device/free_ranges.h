// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/range.h"

#include <map>
#include <optional>
#include <set>
#include <utility>

namespace spillway::emulator {

/// Free ranges of numbers: addresses or file offsets. Neighbors merge. The smallest range that fits
/// is returned first, the lowest among equals, so that consecutive requests are adjacent.
/// Threads: under the machine's lock.
class FreeRanges {
 public:
  /// Requires: no overlap with free ranges.
  void give(Range range);

  std::optional<Range> take(std::size_t bytes, std::size_t alignment);
  /// False if not all of `range` is free.
  bool take(Range range);

  /// The free range that contains all of `range`.
  [[nodiscard]] std::optional<Range> around(Range range) const;

  [[nodiscard]] std::size_t count() const { return by_begin_.size(); }

 private:
  struct Entry {
    Range range;
  };

  void insert(Range range);
  void erase(Range range);

  std::map<std::uintptr_t, Entry> by_begin_;
  std::set<std::pair<std::size_t, std::uintptr_t>> by_size_;
};

}  // namespace spillway::emulator
