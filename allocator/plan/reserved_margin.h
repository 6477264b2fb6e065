// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace spillway {

/// Predicts the reserved bytes of a device beyond its allocated bytes.
class PredictedReserved {
 public:
  /// A device's memory at the beginning of a step.
  struct Memory {
    Bytes stranded;   // free, but too fragmented for use
    Bytes allocated;  // allocated beyond the step
    Bytes page;       // granularity of physical memory
  };

  /// No prediction: the budget does not limit reserved bytes.
  PredictedReserved() = default;

  explicit PredictedReserved(const Memory& memory) : memory_(memory) {}

  /// The difference between the budget and the allocated bytes of a step that saves this many
  /// storages.
  [[nodiscard]] Bytes margin(Bytes budget, std::size_t storages) const;
  /// The uncertainty of margin().
  [[nodiscard]] Bytes spare(Bytes budget, std::size_t storages) const;
  /// The smallest budget whose margin() leaves `allocated` bytes.
  [[nodiscard]] Bytes budget_leaving(Bytes allocated, std::size_t storages) const;
  /// The smallest budget predicted to fit a step that needs `allocated` bytes: its margin() leaves
  /// that many, plus half of the predicted fragmentation.
  [[nodiscard]] Bytes budget_for(Bytes allocated, std::size_t storages) const;

 private:
  // The following require memory_.
  /// Predicted fragmentation within that budget, or with that many allocated bytes.
  [[nodiscard]] Bytes between(Bytes budget, std::size_t storages) const;
  [[nodiscard]] Bytes between_with(Bytes allocated, std::size_t storages) const;

  std::optional<Memory> memory_;
};

/// The difference between the budget and the budget that plans are made for, because reserved bytes
/// exceed allocated bytes: a predicted one until steps have reserved more than the budget, then a
/// measured one.
/// Threads: confined.
class ReservedMargin {
 public:
  /// The margin of the latest plan.
  [[nodiscard]] Bytes bytes() const { return bytes_; }

  /// Sets bytes() for a new plan. `foreseen`: PredictedReserved's margin, its lower bound.
  void plan(Bytes foreseen) { bytes_ = std::max(measured_, foreseen); }

  /// A step that followed a plan for `budget` minus bytes() had a peak of `most` reserved bytes.
  /// True if the next plan needs another margin: the second step in a row has exceeded the budget.
  /// The first may still have reserved the memory of the plan before.
  bool observe(Bytes most, Bytes budget);
  /// Two such steps had the same requests, for which the budget lacks that many bytes: the next
  /// plan needs another margin.
  void lacks(Bytes missing, Bytes budget);

 private:
  Bytes bytes_;
  Bytes measured_;
  bool exceeded_ = false;  // by the last step
};

}  // namespace spillway
