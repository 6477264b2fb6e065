// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway {

/// Where pieces of a row of `sizes` begin: `parts` of them, in order, none empty, of which the
/// largest has as few bytes as can be. Requires: 1 <= parts <= sizes.size().
std::vector<std::size_t> split_by_bytes(const std::vector<std::uint64_t>& sizes, std::size_t parts);

}  // namespace spillway
