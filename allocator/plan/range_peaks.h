// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway {

/// An array of numbers with addition over a range and maximum over a range: a segment tree, each
/// call O(log n). Ranges are from <= index < to. Every number must stay between zero and 2^62.
class RangePeaks {
 public:
  explicit RangePeaks(const std::vector<std::uint64_t>& values);

  void add(std::size_t from, std::size_t to, std::uint64_t bytes) {
    change(from, to, static_cast<std::int64_t>(bytes));
  }

  void take(std::size_t from, std::size_t to, std::uint64_t bytes) {
    change(from, to, -static_cast<std::int64_t>(bytes));
  }

  /// Adds `bytes` over the range if `more`, else subtracts them.
  void put(std::size_t from, std::size_t to, std::uint64_t bytes, bool more) {
    more ? add(from, to, bytes) : take(from, to, bytes);
  }

  /// The maximum over the range; zero for an empty range.
  [[nodiscard]] std::uint64_t most(std::size_t from, std::size_t to) const;

  [[nodiscard]] std::uint64_t most() const { return static_cast<std::uint64_t>(nodes_[1].most); }

  /// The first index of the longest suffix of the range in which no number exceeds `limit`; `to` if
  /// the last number does.
  [[nodiscard]] std::size_t free_since(std::size_t from, std::size_t to, std::uint64_t limit) const;

 private:
  struct Node {
    std::int64_t most = 0;   // maximum over its range, including `added`
    std::int64_t added = 0;  // added to its whole range, not yet propagated to its children
  };

  void change(std::size_t from, std::size_t to, std::int64_t bytes);
  void settle(std::size_t node);
  [[nodiscard]] std::size_t last_above(std::size_t node,
                                       std::size_t first,
                                       std::size_t count,
                                       std::size_t to,
                                       std::int64_t limit) const;

  std::size_t count_;
  std::size_t leaves_ = 1;   // a power of two
  std::vector<Node> nodes_;  // from 1; node n has the children 2n and 2n + 1
};

}  // namespace spillway
