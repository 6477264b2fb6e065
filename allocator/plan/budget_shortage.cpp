// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/budget_chooser.h"
#include "allocator/plan/planner.h"

#include <algorithm>
#include <utility>

// What a budget would have had to be.
namespace spillway {
namespace {

/// This much more than one step reserved may the next one need, whose blocks lie otherwise: a
/// share, and a quarter of the smallest budget that counts what is reserved, a few pages.
constexpr std::uint64_t kReservedShare = 128;
constexpr std::uint64_t kPagesShare = 4;

/// Reserved memory may exceed a budget by such a share of it where what is allocated fits: how much
/// lies between blocks differs from step to step.
constexpr std::uint64_t kFragmentedShare = 16;

}  // namespace

/// What any plan for the step that is to end needs, with what plans of it leave.
Bytes BudgetChooser::least_of(const StepCurve& curve) const {
  StepProfile profile =
      profile_of(RecordedStep(curve, sizes_.size()), sizes_, recomputable_, nullptr);
  profile.free_at_once = free_at_once_;
  const Shape* const shape = ended();
  const Bytes margin = shape != nullptr ? shape->margin : Bytes{};
  return std::min(curve.peak(), least_peak(profile) + margin);
}

/// The device's memory comes in pages, of several kinds: smaller budgets count allocated bytes.
bool BudgetChooser::counts_reserved(Bytes budget) const {
  return !reserved_.zero() && budget >= fewest_reserved_;
}

Bytes BudgetChooser::needed_with(Bytes peak) const {
  return counts_reserved(budget_) ? std::max(peak, reserved_) : peak;
}

bool BudgetChooser::exceeds(Bytes peak) const {
  return needed_with(peak) > budget_;
}

std::optional<BudgetShortage> BudgetChooser::excess(const StepCurve& curve) const {
  if (curve.live.empty() || !exceeds(curve.peak())) return std::nullopt;
  return BudgetShortage{needed_with(curve.peak()), Bytes{curve.live.front()}};
}

/// No plan needs less than its own.
bool BudgetChooser::has_least(const Shape& shape) {
  return shape.plan->peak <= shape.plan->least || shape.plan->peak > shape.plan->budget;
}

/// Where this step has a plan that needs as little as any: how much that is.
std::optional<Bytes> BudgetChooser::least_planned() const {
  const Shape* const shape = ended();
  if (shape == nullptr || !shape->plan || !has_least(*shape)) return std::nullopt;
  return planned_peak(*shape);
}

std::optional<BudgetShortage> BudgetChooser::shortage(const StepCurve& curve) const {
  return shortage(curve, least_planned(), false);
}

std::optional<BudgetShortage> BudgetChooser::shortage(const StepCurve& curve,
                                                      const std::optional<Bytes>& least,
                                                      bool optimized) const {
  if (sizes_.empty() || curve.live.empty() || !exceeds(curve.peak())) return std::nullopt;
  if (curve.peak() <= budget_ && reserved_ <= budget_ + Bytes{budget_.count() / kFragmentedShare})
    return std::nullopt;
  // What the next step of this kind needs is not more than this.
  Bytes peak = curve.peak();
  if (refused_) {
    // More could not move: the host's memory is used up.
  } else if (whole_) {
    // A plan is of no use where no step comes twice.
    if (over_in_a_row_ < kMaxShapes) peak = least_of(curve);
    if (recomputed_ && peak <= budget_) return std::nullopt;
  } else if (least && curve.peak() > budget_) {
    peak = std::min(peak, *least);  // of what is beyond that the next plan takes care
    if (peak <= budget_) return std::nullopt;
  } else {
    return std::nullopt;  // from here on everything is offloaded
  }
  const Bytes begin{curve.live.front()};
  const bool known = optimized_begin_ == begin;
  const Bytes needed = known ? std::max(peak, optimized_peak_) : peak;
  return BudgetShortage{smallest_for(needed, curve), begin, !known && !optimized};
}

/// The budget for steps that need this many bytes allocated: what this one reserved beyond what it
/// had allocated the next ones will, too, and a little more where their blocks lie otherwise.
Bytes BudgetChooser::smallest_for(Bytes needed, const StepCurve& curve) const {
  if (!counts_reserved(needed)) return needed;
  const Bytes beyond = saturating_sub(reserved_, curve.peak());
  const Bytes reserved = std::max(needed + beyond, reserved_);
  return reserved + Bytes{reserved.count() / kReservedShare} +
         Bytes{fewest_reserved_.count() / kPagesShare};
}

}  // namespace spillway
