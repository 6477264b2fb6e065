// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway {

/// Starts of `parts` consecutive, nonempty pieces of `sizes`, such that the largest piece is as
/// small as possible.
/// Requires: 1 <= parts <= sizes.size().
std::vector<std::size_t> split_by_bytes(const std::vector<std::uint64_t>& sizes, std::size_t parts);

}  // namespace spillway
