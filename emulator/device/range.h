// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <optional>

namespace spillway::emulator {

/// A half-open range of addresses.
struct Range {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;

  /// None if the range would exceed the address space.
  static std::optional<Range> of(std::uintptr_t begin, std::size_t bytes) {
    if (bytes > std::numeric_limits<std::uintptr_t>::max() - begin) return std::nullopt;
    return Range{begin, begin + bytes};
  }

  static std::optional<Range> of(const void* begin, std::size_t bytes) {
    return of(reinterpret_cast<std::uintptr_t>(begin), bytes);
  }

  [[nodiscard]] std::size_t bytes() const { return end - begin; }

  [[nodiscard]] void* at() const { return reinterpret_cast<void*>(begin); }

  [[nodiscard]] bool contains(Range other) const {
    return begin <= other.begin && other.end <= end;
  }

  [[nodiscard]] bool overlaps(Range other) const { return begin < other.end && other.begin < end; }
};

/// The first entry of a map from begin to something with a `range` that overlaps `range`, or end().
/// Requires: the ranges in the map do not overlap each other.
template <typename Map>
auto first_overlap(Map& map, Range range) {
  auto found = map.upper_bound(range.begin);
  if (found != map.begin() && std::prev(found)->second.range.overlaps(range))
    return std::prev(found);
  return found != map.end() && found->second.range.overlaps(range) ? found : map.end();
}

/// `bytes` rounded up to a multiple of `unit`; none on overflow. Requires: unit > 0.
inline std::optional<std::size_t> round_up(std::size_t bytes, std::size_t unit) {
  if (bytes > std::numeric_limits<std::size_t>::max() - (unit - 1)) return std::nullopt;
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace spillway::emulator
