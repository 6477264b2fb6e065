// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/budget_chooser.h"
#include "allocator/plan/planner.h"

#include <algorithm>
#include <utility>

// The budget that a step would have needed.
namespace spillway {
namespace {

/// The next step, with another layout, may reserve more by a share, and by a quarter of the
/// smallest budget that limits reserved bytes, a few pages.
constexpr std::uint64_t kReservedShare = 128;
constexpr std::uint64_t kPagesShare = 4;

/// Reserved memory may exceed a budget by this share if the allocated bytes fit: fragmentation
/// varies from step to step.
constexpr std::uint64_t kFragmentedShare = 16;

}  // namespace

/// The minimum of any plan for the ending step, including the fragmentation of its plans.
Bytes BudgetChooser::least_of(const StepCurve& curve) const {
  StepProfile profile =
      profile_of(RecordedStep(curve, sizes_.size()), sizes_, recomputable_, nullptr);
  profile.free_at_once = terms_.free_at_once;
  const Shape* const shape = ended();
  const Bytes margin = shape != nullptr ? shape->margin() : Bytes{};
  return std::min(curve.peak(), least_peak(profile) + margin + curve.model_state_at_peak());
}

/// Device memory comes in pages of several kinds: smaller budgets limit allocated bytes.
bool BudgetChooser::counts_reserved(Bytes budget) const {
  return !memory_.reserved.zero() && budget >= memory_.fewest_reserved;
}

Bytes BudgetChooser::needed_with(Bytes peak) const {
  return counts_reserved(budget()) ? std::max(peak, memory_.reserved) : peak;
}

bool BudgetChooser::exceeds(Bytes peak) const {
  return needed_with(peak) > budget();
}

std::optional<BudgetShortage> BudgetChooser::excess(const StepCurve& curve) const {
  if (curve.allocated.empty() || !exceeds(curve.peak())) return std::nullopt;
  return BudgetShortage{needed_with(curve.peak()), curve.at_begin(), curve.saved_at_peak()};
}

/// The peak of this step's plan if no plan needs less.
std::optional<Bytes> BudgetChooser::least_planned() const {
  const Shape* const shape = ended();
  if (shape == nullptr || shape->plan() == nullptr || !shape->has_least_plan()) return std::nullopt;
  return shape->planned_peak();
}

std::optional<BudgetShortage> BudgetChooser::shortage(const StepCurve& curve) const {
  return shortage(curve, least_planned(), false);
}

std::optional<BudgetShortage> BudgetChooser::shortage(const StepCurve& curve,
                                                      const std::optional<Bytes>& least,
                                                      bool optimized) const {
  if (sizes_.empty() || curve.allocated.empty() || !exceeds(curve.peak())) return std::nullopt;
  if (curve.peak() <= budget() &&
      memory_.reserved <= budget() + Bytes{budget().count() / kFragmentedShare})
    return std::nullopt;
  // The next step of this kind needs at most this.
  Bytes peak = curve.peak();
  if (refused_) {
    // No more could be offloaded: host memory is exhausted.
  } else if (fully_offloaded_) {
    // A plan has no use if no step is repeated.
    if (over_in_a_row_ < Shapes::kMax) peak = least_of(curve);
    if (recomputed_ && peak <= budget()) return std::nullopt;
  } else if (least && curve.peak() > budget()) {
    peak = std::min(peak, *least + curve.model_state_at_peak());  // the next plan handles the rest
    if (peak <= budget()) return std::nullopt;
  } else {
    return std::nullopt;  // from here on everything is offloaded or recomputed
  }
  const Bytes begin = curve.at_begin();
  const bool known = optimized_begin_ == begin;
  const Bytes needed = known ? std::max(peak, optimized_peak_) : peak;
  return BudgetShortage{
      smallest_for(needed, curve), begin, curve.saved_at_peak(), !known && !optimized, refused_};
}

/// The budget for steps that need that many allocated bytes. Assumes that later steps reserve as
/// much beyond them as this one, plus an allowance for another layout.
Bytes BudgetChooser::smallest_for(Bytes needed, const StepCurve& curve) const {
  if (!counts_reserved(needed)) return needed;
  const Bytes beyond = saturating_sub(memory_.reserved, curve.peak());
  const Bytes reserved = std::max(needed + beyond, memory_.reserved);
  return reserved + Bytes{reserved.count() / kReservedShare} +
         Bytes{memory_.fewest_reserved.count() / kPagesShare};
}

}  // namespace spillway
