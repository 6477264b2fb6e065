// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway {

/// Numbers to which the same may be added over a range, or taken from, with the most of any range:
/// a segment tree, each call O(log n). Ranges are from <= place < to; no number is ever below zero,
/// or above 2^62.
class RangePeaks {
 public:
  explicit RangePeaks(const std::vector<std::uint64_t>& values);

  void add(std::size_t from, std::size_t to, std::uint64_t bytes) {
    change(from, to, static_cast<std::int64_t>(bytes));
  }

  void take(std::size_t from, std::size_t to, std::uint64_t bytes) {
    change(from, to, -static_cast<std::int64_t>(bytes));
  }

  /// Adds where there is `more` of it, and takes where not.
  void put(std::size_t from, std::size_t to, std::uint64_t bytes, bool more) {
    more ? add(from, to, bytes) : take(from, to, bytes);
  }

  /// Zero for an empty range.
  [[nodiscard]] std::uint64_t most(std::size_t from, std::size_t to) const;

  [[nodiscard]] std::uint64_t most() const { return static_cast<std::uint64_t>(nodes_[1].most); }

  /// The first place of the last part of the range, up to its end, in which nothing is above
  /// `limit`; `to` where its last place is.
  [[nodiscard]] std::size_t free_since(std::size_t from, std::size_t to, std::uint64_t limit) const;

 private:
  struct Node {
    std::int64_t most = 0;   // of its places, with `added`
    std::int64_t added = 0;  // to all of its places, not yet in what is below
  };

  void change(std::size_t from, std::size_t to, std::int64_t bytes);
  void settle(std::size_t node);
  [[nodiscard]] std::size_t last_above(std::size_t node,
                                       std::size_t first,
                                       std::size_t places,
                                       std::size_t to,
                                       std::int64_t limit) const;

  std::size_t count_;
  std::size_t leaves_ = 1;   // a power of two
  std::vector<Node> nodes_;  // from 1; node n has 2n and 2n + 1 below it
};

}  // namespace spillway
