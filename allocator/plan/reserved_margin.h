// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

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
/// exceed allocated bytes.
/// Threads: confined.
class ReservedMargin {
 public:
  /// The margin of the latest plan.
  [[nodiscard]] Bytes bytes() const { return bytes_; }

  /// Sets bytes() for a new plan. `foreseen`: PredictedReserved's margin, a lower bound for it
  /// unless a margin was chosen from measurements.
  void plan(Bytes foreseen) { bytes_ = chosen_ ? known_ : std::max(known_, foreseen); }

  /// The placement of a plan needs `shortfall` bytes more. True if the next plan needs another
  /// margin.
  bool observe_shortfall(Bytes shortfall, Bytes budget, bool least);

  /// A step that followed a plan for `budget` minus bytes() had a peak of `most` reserved bytes.
  /// `least`: no plan needs less. True if the next plan needs another margin. The margin grows
  /// after several consecutive steps above the budget. If the least plan also keeps exceeding it,
  /// the smallest margin with the lowest measured peak is chosen.
  bool observe(Bytes most, Bytes budget, bool least);

 private:
  struct Tried {
    Bytes margin;
    Bytes reserved;
  };

  void note(Bytes most);
  [[nodiscard]] Bytes best(Bytes alike) const;

  Bytes bytes_;
  Bytes known_;  // from measured steps
  std::vector<Tried> tried_;
  int over_ = 0;      // consecutive steps above the budget
  int excesses_ = 0;  // times that the least plan has kept exceeding the budget
  bool chosen_ = false;
};

}  // namespace spillway
