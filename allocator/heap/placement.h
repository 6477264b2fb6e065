// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"

#include <cstdint>
#include <span>
#include <vector>

namespace spillway {

/// A block with known times: allocated from `born` until `died` (exclusive).
struct Lifetime {
  Bytes size;
  std::uint32_t born = 0;
  std::uint32_t died = 0;

  /// Whether the lifetimes overlap, for a sequence that runs once.
  [[nodiscard]] bool meets(const Lifetime& other) const {
    return born < other.died && other.born < died;
  }

  /// Whether the lifetimes overlap in a sequence that repeats every `period`.
  /// Requires: every lifetime begins in the first period and is at most one period long.
  [[nodiscard]] bool meets(const Lifetime& other, std::uint32_t period) const {
    return meets(other) || other.born + period < died || born + period < other.died;
  }
};

/// Offsets at which blocks with overlapping lifetimes do not overlap in memory.
struct Placement {
  std::vector<Bytes> offsets;  // one per block
  Bytes size;                  // total
};

/// Period of a sequence that runs once.
constexpr std::uint32_t kOnce = 1U << 31U;

/// Peak of the allocated bytes in a sequence that repeats every `period`; a lower bound on every
/// placement.
/// Requires: born < died; as Lifetime::meets.
Bytes peak_allocated(std::span<const Lifetime> blocks, std::uint32_t period = kOnce);

/// The smallest of several placements by best fit and first fit. The orders are by size, by bytes
/// times lifetime, and by birth. Further rounds place the blocks first that exceeded the peak of
/// the allocated bytes. They end when hardly any block exceeds it, when several have found nothing
/// better, or at a work limit. Deterministic. The time is quadratic in the number of blocks; at
/// most one second for few of them.
/// Requires: as peak_allocated.
Placement place(std::span<const Lifetime> blocks, std::uint32_t period = kOnce);

/// A placement in pages that can be mapped at several addresses. A block without a contiguous free
/// range gets scattered pages.
struct PagedPlacement {
  std::vector<Bytes> offsets;                     // of blocks without pages of their own
  std::vector<std::vector<std::uint32_t>> pages;  // by block, in the block's order; else empty
  Bytes size;                                     // whole pages
};

/// place() if its result hardly exceeds the peak of the allocated bytes. Otherwise blocks of a page
/// or more get whole pages. The number of pages is then the peak at one time, plus those of blocks
/// that are allocated when the fewest bytes are.
PagedPlacement place_in_pages(std::span<const Lifetime> blocks, std::uint32_t period, Bytes page);

}  // namespace spillway
