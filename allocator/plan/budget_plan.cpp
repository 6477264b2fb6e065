// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/budget_plan.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

/// A step's peaks while storages are put back one by one.
class Peaks {
 public:
  explicit Peaks(const RecordedStep& step) : step_(step), peaks_(step.peaks) {
    for (const std::uint64_t peak : peaks_)
      most_ = std::max(most_, peak);
  }

  [[nodiscard]] std::uint64_t most() const { return most_; }

  /// Keeps the storage where the step then needs at most `limit`.
  bool keep(std::size_t storage, std::uint64_t limit) {
    const auto [first, last] = absences_of(storage);
    std::uint64_t needed = most_;
    for (auto away = first; away != last; ++away) {
      for (std::size_t place = away->from; place < away->to; ++place)
        needed = std::max(needed, peaks_[place] + away->bytes);
    }
    if (needed > limit) return false;
    for (auto away = first; away != last; ++away) {
      for (std::size_t place = away->from; place < away->to; ++place)
        peaks_[place] += away->bytes;
    }
    most_ = needed;
    return true;
  }

 private:
  using Absences = std::vector<RecordedStep::Absence>::const_iterator;

  [[nodiscard]] std::pair<Absences, Absences> absences_of(std::size_t storage) const {
    const auto before = [](const RecordedStep::Absence& away, std::size_t each) {
      return away.storage < each;
    };
    const auto first =
        std::lower_bound(step_.absences.begin(), step_.absences.end(), storage, before);
    return {first, std::lower_bound(first, step_.absences.end(), storage + 1, before)};
  }

  const RecordedStep& step_;
  std::vector<std::uint64_t> peaks_;
  std::uint64_t most_ = 0;
};

}  // namespace

RecordedStep::RecordedStep(const StepCurve& curve, std::size_t count) : storages(count) {
  std::vector<std::size_t> edges{0, curve.live.size()};
  for (const StepCurve::Absence& away : curve.absences) {
    edges.push_back(away.from);
    edges.push_back(away.to);
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  const auto index_of = [&](std::size_t place) {
    return static_cast<std::size_t>(std::lower_bound(edges.begin(), edges.end(), place) -
                                    edges.begin());
  };
  const auto at = [&](std::size_t place) {
    return curve.live.begin() + static_cast<std::ptrdiff_t>(place);
  };

  for (std::size_t edge = 0; edge + 1 < edges.size(); ++edge)
    peaks.push_back(*std::max_element(at(edges[edge]), at(edges[edge + 1])));
  for (const StepCurve::Absence& away : curve.absences) {
    if (away.from < away.to)
      absences.push_back({away.storage, index_of(away.from), index_of(away.to), away.bytes});
  }
  std::stable_sort(absences.begin(), absences.end(), [](const Absence& left, const Absence& right) {
    return left.storage < right.storage;
  });
  begin = Bytes{curve.live.empty() ? 0 : curve.live.front()};
}

BudgetPlan plan_budget(const RecordedStep& step, Bytes budget) {
  Peaks peaks(step);
  BudgetPlan plan{std::vector<bool>(step.storages, true), {}, Bytes{peaks.most()}};
  // Whatever the budget, so that the order of what goes on from here does not depend on it either.
  const std::uint64_t least = peaks.most();
  for (std::size_t storage = step.storages; storage-- > 0;)
    plan.moves[storage] = !peaks.keep(storage, least);
  for (std::size_t storage = step.storages; storage-- > 0;) {
    if (!plan.moves[storage]) continue;
    if (!peaks.keep(storage, budget.count())) break;
    plan.moves[storage] = false;
  }
  plan.peak = Bytes{peaks.most()};
  return plan;
}

}  // namespace spillway
