// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/range_peaks.h"

#include "allocator/base/check.h"

#include <algorithm>
#include <limits>

namespace spillway {

RangePeaks::RangePeaks(const std::vector<std::uint64_t>& values) : count_(values.size()) {
  while (leaves_ < count_)
    leaves_ *= 2;
  nodes_.resize(2 * leaves_);
  for (std::size_t index = 0; index < count_; ++index)
    nodes_[leaves_ + index].most = static_cast<std::int64_t>(values[index]);
  for (std::size_t node = leaves_ - 1; node > 0; --node)
    settle(node);
}

void RangePeaks::settle(std::size_t node) {
  nodes_[node].most =
      nodes_[node].added + std::max(nodes_[2 * node].most, nodes_[2 * node + 1].most);
}

void RangePeaks::change(std::size_t from, std::size_t to, std::int64_t bytes) {
  SPILLWAY_CHECK(to <= count_);
  if (from >= to) return;
  const auto put = [&](std::size_t node) {
    nodes_[node].most += bytes;
    nodes_[node].added += bytes;
  };
  std::size_t left = from + leaves_;
  std::size_t right = to - 1 + leaves_;
  put(left);
  if (left != right) put(right);
  while (left / 2 != right / 2) {
    if (left % 2 == 0) put(left + 1);
    if (right % 2 == 1) put(right - 1);
    settle(left /= 2);
    settle(right /= 2);
  }
  for (std::size_t node = left / 2; node > 0; node /= 2) {
    const std::int64_t before = nodes_[node].most;
    settle(node);
    if (nodes_[node].most == before) break;
  }
}

std::uint64_t RangePeaks::most(std::size_t from, std::size_t to) const {
  SPILLWAY_CHECK(to <= count_);
  if (from >= to) return 0;
  // On the way up, adds the value of each node to the maximum of its part of the range.
  std::size_t left = from + leaves_;
  std::size_t right = to - 1 + leaves_;
  std::int64_t of_left = nodes_[left].most;
  std::int64_t of_right = nodes_[right].most;
  while (left / 2 != right / 2) {
    if (left % 2 == 0) of_left = std::max(of_left, nodes_[left + 1].most);
    if (right % 2 == 1) of_right = std::max(of_right, nodes_[right - 1].most);
    left /= 2;
    right /= 2;
    of_left += nodes_[left].added;
    of_right += nodes_[right].added;
  }
  std::int64_t most = std::max(of_left, of_right);
  for (std::size_t node = left / 2; node > 0; node /= 2)
    most += nodes_[node].added;
  return static_cast<std::uint64_t>(most);
}

std::size_t RangePeaks::free_since(std::size_t from, std::size_t to, std::uint64_t limit) const {
  SPILLWAY_CHECK(to <= count_);
  if (from >= to) return to;
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max() / 2;
  const auto least = static_cast<std::int64_t>(std::min(limit, kMax));
  return std::max(from, last_above(1, 0, leaves_, to, least));
}

/// One past the last index before `to` in the node's range whose value exceeds `limit`; 0 if there
/// is none. `limit` excludes the values added above the node.
// NOLINTNEXTLINE(misc-no-recursion): as deep as the tree
std::size_t RangePeaks::last_above(std::size_t node,
                                   std::size_t first,
                                   std::size_t count,
                                   std::size_t to,
                                   std::int64_t limit) const {
  if (first >= to || nodes_[node].most <= limit) return 0;
  if (count == 1) return first + 1;
  const std::int64_t below = limit - nodes_[node].added;
  const std::size_t half = count / 2;
  const std::size_t right = last_above(2 * node + 1, first + half, half, to, below);
  return right != 0 ? right : last_above(2 * node, first, half, to, below);
}

}  // namespace spillway
