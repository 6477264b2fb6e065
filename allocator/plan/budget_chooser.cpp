// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/budget_chooser.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

/// Shapes that are remembered. A job with ever new shapes starts over instead of growing without
/// end.
constexpr std::size_t kMostShapes = 256;

Bytes less(Bytes from, Bytes by) {
  return from > by ? from - by : Bytes{};
}

}  // namespace

void BudgetChooser::make_plan(Shape& shape, Bytes live) const {
  if (!shape.recorded) return;
  const RecordedStep& recorded = *shape.recorded;
  shape.settled = shape.settled || live == recorded.begin;
  if (!shape.settled || (shape.plan && live == shape.live_at_begin)) return;
  // What the recorded step would have been allowed, had it begun as this one does.
  const Bytes allowed = less(less(budget_ + recorded.begin, live), shape.margin);
  shape.plan = plan_budget(recorded, allowed);
  shape.live_at_begin = live;
  if (shape.plan->peak > allowed) shape.plan.reset();
}

bool BudgetChooser::choose(Bytes size, Bytes live) {
  const std::size_t index = sizes_.size();
  if (index == 0) {
    for (Shape& shape : shapes_)
      candidates_.push_back(&shape);
  }
  std::erase_if(candidates_, [&](const Shape* shape) {
    return index >= shape->sizes.size() || shape->sizes[index] != size;
  });
  if (index == 0) {
    known_first_ = !candidates_.empty();
    for (Shape* const shape : candidates_)
      make_plan(*shape, live);
  }
  const bool moves = candidates_.empty() ||
                     std::any_of(candidates_.begin(), candidates_.end(), [&](const Shape* shape) {
                       return !shape->plan || shape->plan->moves[index];
                     });
  whole_ = whole_ && moves;
  sizes_.push_back(size);
  return moves;
}

std::optional<BudgetShortage> BudgetChooser::shortage(Bytes peak, Bytes begin) const {
  if (!whole_ || sizes_.empty() || peak <= budget_) return std::nullopt;
  const bool known = optimized_begin_ == begin;
  return BudgetShortage{known ? std::max(peak, optimized_peak_) : peak, !known};
}

std::optional<BudgetShortage> BudgetChooser::end_step(const StepCurve& curve, bool optimized) {
  if (sizes_.empty() || curve.live.empty()) {
    abandon_step();
    return std::nullopt;
  }
  const auto known =
      std::find_if(candidates_.begin(), candidates_.end(), [&](const Shape* candidate) {
        return candidate->sizes.size() == sizes_.size();
      });
  if (known != candidates_.end()) {
    end_known(**known, curve);
  } else {
    if (known_first_) ++mismatches_;
    if (shapes_.size() >= kMostShapes) shapes_.clear();
    Shape& shape = shapes_.emplace_back();
    shape.sizes = sizes_;
    if (whole_) record(shape, curve);
  }
  const Bytes begin{curve.live.front()};
  const auto missing = shortage(curve.peak(), begin);
  if (optimized) {
    optimized_begin_ = begin;
    optimized_peak_ = curve.tail_peak();
  }
  abandon_step();
  return missing;
}

void BudgetChooser::end_known(Shape& shape, const StepCurve& curve) {
  if (whole_) {
    // The first recording is the one that may have to be made again.
    shape.settled = shape.settled || shape.recorded;
    record(shape, curve);
  } else if (curve.peak() > budget_) {
    shape.margin += curve.peak() - budget_;
    shape.recorded.reset();
    shape.plan.reset();
  }
}

void BudgetChooser::record(Shape& shape, const StepCurve& curve) {
  shape.recorded.emplace(curve, sizes_.size());
  shape.plan.reset();
}

void BudgetChooser::abandon_step() {
  sizes_.clear();
  candidates_.clear();
  whole_ = true;
  known_first_ = false;
}

}  // namespace spillway
