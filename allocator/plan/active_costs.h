// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace spillway {

/// The least total cost of a number of bytes that are chosen among the active ones of a list of
/// items. An item is divisible; the cheapest per byte are chosen first (the fractional knapsack). A
/// Fenwick tree: each call is O(log n).
class ActiveCosts {
 public:
  struct Item {
    double bytes = 0;
    double seconds = 0;
  };

  /// None is active. Items of zero bytes never count.
  explicit ActiveCosts(std::vector<Item> items);

  void activate(std::size_t item) { change(item, 1); }

  void deactivate(std::size_t item) { change(item, -1); }

  void activate_all();
  void deactivate_all();

  /// The bytes of all active items.
  [[nodiscard]] double bytes() const { return total_.bytes; }

  /// The least cost of that many bytes; of all active ones if they are fewer.
  [[nodiscard]] double seconds(double bytes) const;

 private:
  void change(std::size_t item, double sign);

  std::vector<Item> items_;
  std::vector<std::size_t> rank_;  // by item, from 1: the cheapest per byte
  std::vector<double> per_byte_;   // by rank
  std::vector<Item> sums_;         // Fenwick tree over ranks, from 1
  std::size_t highest_power_ = 0;  // of two, at most the number of items
  Item total_{};
};

}  // namespace spillway
