// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/shards/split.h"

#include "allocator/base/check.h"

#include <algorithm>
#include <numeric>

namespace spillway {
namespace {

/// Likewise with no piece above `limit`; empty if that needs more pieces.
std::vector<std::size_t> pieces_up_to(std::uint64_t limit,
                                      const std::vector<std::uint64_t>& sizes,
                                      std::size_t parts) {
  std::vector<std::size_t> begins{0};
  std::uint64_t total = 0;
  for (std::size_t index = 0; index < sizes.size(); ++index) {
    if (sizes[index] > limit) return {};
    // At least as many elements as pieces must be left, so that no piece is empty.
    const bool needed = sizes.size() - index + begins.size() <= parts;
    if (index > begins.back() && (total + sizes[index] > limit || needed)) {
      begins.push_back(index);
      total = 0;
    }
    total += sizes[index];
  }
  return begins.size() == parts ? begins : std::vector<std::size_t>{};
}

}  // namespace

std::vector<std::size_t> split_by_bytes(const std::vector<std::uint64_t>& sizes,
                                        std::size_t parts) {
  SPILLWAY_CHECK(parts >= 1 && parts <= sizes.size());
  std::uint64_t low = *std::max_element(sizes.begin(), sizes.end());
  std::uint64_t high = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    if (pieces_up_to(middle, sizes, parts).empty()) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return pieces_up_to(low, sizes, parts);
}

}  // namespace spillway
