// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"

#include <cstdint>
#include <span>
#include <vector>

namespace spillway {

/// A block whose times are known beforehand: it lives from `born` up to, without, `died`.
struct Lifetime {
  Bytes size;
  std::uint32_t born = 0;
  std::uint32_t died = 0;

  [[nodiscard]] bool meets(const Lifetime& other) const {
    return born < other.died && other.born < died;
  }
};

/// Where blocks lie so that no two that live at one time overlap.
struct Placement {
  std::vector<Bytes> offsets;  // one for each block
  Bytes size;                  // of all of it
};

/// The most bytes that live at one time: no placement is smaller. Requires: born < died.
Bytes most_live(std::span<const Lifetime> blocks);

/// The smallest of some placements by best fit: the largest blocks first, those of the most bytes
/// times time first, in order of birth; then the same again, those first that stood out beyond what
/// lives at one time, until hardly anything does or it takes too long. The same blocks give the
/// same placement. Takes time by the square of their number, for few of them a second at most.
/// Requires: born < died.
Placement place(std::span<const Lifetime> blocks);

}  // namespace spillway
