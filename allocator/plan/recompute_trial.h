// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"

#include <cstdint>
#include <optional>

namespace spillway {

/// Decides for one device with a budget whether a step recomputes, or only offloads. Recomputation
/// takes less time, but needs its inputs and results on the device; offloading needs the least
/// memory. Steps only offload
/// - for some steps after recomputation has exceeded the budget: 4, 16, 64, …;
/// - the first time that they are larger than every step that has recomputed. An exception is made
///   if a smaller step needed so little with everything offloaded that the larger one has room.
/// The size of a step is that of its first storage.
///
/// Threads: confined.
class RecomputeTrial {
 public:
  explicit RecomputeTrial(Bytes budget) : budget_(budget) {}

  /// Begins a step whose first storage has `first` bytes.
  void begin_step(Bytes first);

  /// Whether the running step recomputes.
  [[nodiscard]] bool on() const { return on_; }

  /// A step of that size has recomputed, in this run or another.
  void recomputed(Bytes first);

  /// A step of that size has needed `needed` bytes with everything offloaded or recomputed.
  void needed(Bytes first, Bytes needed);

  /// Ends the running step. `exceeded`: recomputation exceeded the budget.
  void end_step(bool exceeded);

 private:
  const Bytes budget_;
  bool on_ = true;
  std::optional<Bytes> largest_;        // largest step that has recomputed
  Bytes roomy_;                         // the largest step that may recompute, as far as known
  std::uint64_t offloading_steps_ = 0;  // remaining steps that only offload
  std::uint64_t next_offloading_steps_ = 4;
};

}  // namespace spillway
