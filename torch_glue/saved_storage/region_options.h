// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"
#include "allocator/plan/ratio_chooser.h"
#include "allocator/runtime/runtime.h"

#include <cstddef>
#include <optional>

namespace spillway {

/// Options for the tensors that are saved in a region.
struct RegionOptions {
  TagId tag;  // the tag for planning and statistics
  Ratio ratio;
  Bytes min_bytes = Runtime::instance().options().min_bytes;  // smaller storages stay
  /// With an allocator other than Spillway's: the number of offloaded storages that may still
  /// occupy device memory for their copy. At the next one the current stream waits for the earliest
  /// copy. Without a value no stream waits, and memory stays allocated until a later save finds the
  /// copy complete.
  std::optional<std::size_t> max_in_flight = std::nullopt;
  /// Maximum memory of each device; the ratio is then ignored.
  std::optional<Budget> budget = std::nullopt;
  bool prefetch = true;  // fetches storages ahead of their unpack
  /// Maximum bytes fetched ahead of their use; none: one storage at a time.
  std::optional<Bytes> prefetch_headroom = std::nullopt;
  /// Recomputes storages whose operators can run again, instead of keeping or offloading them.
  bool recompute = false;
  bool names_memory = true;  // allocations within the region belong to `tag`

  [[nodiscard]] bool moves_nothing() const { return ratio.zero() && !budget; }
};

}  // namespace spillway
