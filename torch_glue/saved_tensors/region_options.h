// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"
#include "allocator/plan/ratio_chooser.h"
#include "allocator/runtime/runtime.h"

#include <cstddef>
#include <optional>

namespace spillway {

/// What happens to the tensors that are saved in a region.
struct RegionOptions {
  TagId tag;  // planned and counted under it
  Ratio ratio;
  Bytes min_bytes = Runtime::instance().options().min_bytes;  // smaller storages stay
  /// Over an allocator that is not Spillway's: this many storages that have moved may still hold
  /// device memory for their copy; at the next one the current stream waits for the earliest copy.
  /// Without a value no stream waits, and memory is held until a later save finds the copy done.
  std::optional<std::size_t> max_in_flight = std::nullopt;
  /// The most that each device is to need; the ratio is of no account then.
  std::optional<Budget> budget = std::nullopt;
  bool prefetch = true;  // storages are fetched before they are unpacked
  /// The most bytes that are back before they are; none for one storage at a time.
  std::optional<Bytes> prefetch_headroom = std::nullopt;
  /// Storages that the operators which made them can remake are neither kept nor moved.
  bool recompute = false;
  bool names_memory = true;  // what is allocated inside belongs to `tag`

  [[nodiscard]] bool moves_nothing() const { return ratio.zero() && !budget; }
};

}  // namespace spillway
