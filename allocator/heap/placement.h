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

  /// Whether both live at some time, where everything happens once.
  [[nodiscard]] bool meets(const Lifetime& other) const {
    return born < other.died && other.born < died;
  }

  /// The same where everything happens again and again, every `period`. Requires: no life begins
  /// after the first period, or is longer than one.
  [[nodiscard]] bool meets(const Lifetime& other, std::uint32_t period) const {
    return meets(other) || other.born + period < died || born + period < other.died;
  }
};

/// Where blocks lie so that no two that live at one time overlap.
struct Placement {
  std::vector<Bytes> offsets;  // one for each block
  Bytes size;                  // of all of it
};

/// Nothing happens a second time.
constexpr std::uint32_t kOnce = 1U << 31U;

/// The most bytes that live at one time, where everything happens again every `period`: no
/// placement is smaller. Requires: born < died; as Lifetime::meets.
Bytes peak_allocated(std::span<const Lifetime> blocks, std::uint32_t period = kOnce);

/// The smallest of some placements by best fit and by first fit: the largest blocks first, those of
/// the most bytes times time first, in order of birth; then the same again, those first that stood
/// out beyond what lives at one time, until hardly anything does or it takes too long. The same
/// blocks give the same placement. Takes time by the square of their number, for few of them a
/// second at most. Requires: as peak_allocated.
Placement place(std::span<const Lifetime> blocks, std::uint32_t period = kOnce);

/// A placement in pages of memory, which can be seen at several addresses: where nothing that is in
/// one piece is free for a block, pages are that lie apart.
struct PagedPlacement {
  std::vector<Bytes> offsets;                     // of blocks that are in no pages of their own
  std::vector<std::vector<std::uint32_t>> pages;  // by block, in its order; else empty
  Bytes size;                                     // whole pages
};

/// As place(), where that hardly needs more than lives at one time. Else blocks of a page or more
/// get whole pages, of which no more are needed than at one time, but for blocks that live past the
/// end of a period.
PagedPlacement place_in_pages(std::span<const Lifetime> blocks, std::uint32_t period, Bytes page);

}  // namespace spillway
