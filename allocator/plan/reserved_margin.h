// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

namespace spillway {

/// What can be foreseen of what a device will hold beyond what is live in it.
class PredictedReserved {
 public:
  /// A device's memory when a step begins.
  struct Memory {
    Bytes stranded;  // free, but hardly anything has room there
    Bytes live;      // stays
    Bytes page;      // it comes in these
  };

  /// Nothing: what is held is not to be within the budget.
  PredictedReserved() = default;

  explicit PredictedReserved(const Memory& memory) : memory_(memory) {}

  /// By how much less than the budget may be live in a step that saves this many storages.
  [[nodiscard]] Bytes margin(Bytes budget, std::size_t storages) const;
  /// By how much that may fall short.
  [[nodiscard]] Bytes spare(Bytes budget, std::size_t storages) const;
  /// The least one with a margin() that leaves `live`.
  [[nodiscard]] Bytes budget_leaving(Bytes live, std::size_t storages) const;
  /// The least that is thought to hold a step which can do with `live` and no less: with a margin()
  /// that leaves this much, and half of what is in that for fragmentation to spare.
  [[nodiscard]] Bytes budget_for(Bytes live, std::size_t storages) const;

 private:
  // Require memory_.
  /// What a step leaves between its blocks within that budget, or where this much is live.
  [[nodiscard]] Bytes between(Bytes budget, std::size_t storages) const;
  [[nodiscard]] Bytes between_with(Bytes live, std::size_t storages) const;

  std::optional<Memory> memory_;
};

/// By how much less than the budget a step is planned, because what a device holds is more than
/// what is live in it. Threads: confined.
class ReservedMargin {
 public:
  /// Of the plan that was made last.
  [[nodiscard]] Bytes bytes() const { return bytes_; }

  /// A plan is made. `foreseen`: PredictedReserved's margin, which bytes() is not below then.
  void plan(Bytes foreseen) { bytes_ = chosen_ ? known_ : std::max(known_, foreseen); }

  /// This much is lacking for places of a plan's blocks. True where the next plan is to have other
  /// bytes().
  bool lacks(Bytes lacking, Bytes budget, bool least);

  /// A step that followed a plan for `budget` less bytes() has held this much at its peak. `least`:
  /// no plan needs less. True where the next plan is to have other bytes(): they grow where some
  /// steps in a row have held more than the budget; and where the least plan goes on to hold more
  /// as well, it is what held least, for the least margin.
  bool held(Bytes most, Bytes budget, bool least);

 private:
  struct Tried {
    Bytes margin;
    Bytes held;
  };

  void note(Bytes most);
  [[nodiscard]] Bytes best(Bytes alike) const;

  Bytes bytes_;
  Bytes known_;  // from what steps have held
  std::vector<Tried> tried_;
  int over_ = 0;        // steps in a row that held more
  int needlessly_ = 0;  // times that the least plan has gone on to hold more than the budget
  bool chosen_ = false;
};

}  // namespace spillway
