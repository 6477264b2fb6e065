// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/lifetime/live_curve.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway {

/// A step in which everything moved that could, in as few numbers as plans need: the most that was
/// live between two changes of what is away.
struct RecordedStep {
  std::vector<std::uint64_t> peaks;  // in order

  struct Absence {
    std::size_t storage = 0;
    std::size_t from = 0;  // of peaks
    std::size_t to = 0;
    std::uint64_t bytes = 0;
  };

  std::vector<Absence> absences;  // by storage
  std::size_t storages = 0;
  Bytes begin;  // live when it began

  RecordedStep(const StepCurve& curve, std::size_t storages);
};

/// Which storages of a step move.
struct BudgetPlan {
  std::vector<bool> moves;
  Bytes peak;   // what the step then needs
  Bytes least;  // what it needs where everything moves
};

/// The fewest of the earliest storages so that the step needs at most `budget`, leaving out those
/// whose absence lowers no peak. All that help move where that is not enough. Of two budgets the
/// larger one never moves more: its storages are among those of the smaller.
BudgetPlan plan_budget(const RecordedStep& step, Bytes budget);

}  // namespace spillway
