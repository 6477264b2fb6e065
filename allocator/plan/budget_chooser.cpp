// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/budget_chooser.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

/// If reserved memory exceeds a budget, plans leave this share more free: of the smallest budget
/// that limits reserved bytes, a few pages.
constexpr std::uint64_t kMoreShare = 8;

/// Maximum number of device steps whose times arrive after later steps have ended on the host.
constexpr std::size_t kMaxUntimed = 16;

}  // namespace

void BudgetChooser::set_free_at_once() {
  if (std::exchange(terms_.free_at_once, true)) return;
  for (Shape& shape : shapes_)
    shape.drop_profile();
}

void BudgetChooser::narrow(Bytes size, Bytes allocated, bool recomputable) {
  const std::size_t index = sizes_.size();
  const bool first = !std::exchange(begun_, true);
  if (first) recompute_trial_.begin_step(size);
  recompute_ = recomputable && recompute_trial_.on();
  if (first) {
    for (Shape& shape : shapes_)
      candidates_.push_back(&shape);
  }
  std::erase_if(candidates_,
                [&](const Shape* shape) { return !shape->matches(index, size, recompute_); });
  if (!first) return;
  known_first_ = !candidates_.empty();
  for (Shape* const shape : candidates_)
    shape->begin(allocated, terms_);
  std::stable_sort(
      candidates_.begin(), candidates_.end(), [](const Shape* one, const Shape* other) {
        return one->last_used > other->last_used;
      });
}

std::vector<PlanRequest> BudgetChooser::requests(Bytes size, Bytes allocated, bool recomputable) {
  narrow(size, allocated, recomputable);
  std::vector<PlanRequest> wanted;
  if (!sizes_.empty() && candidates_.size() != 1) return wanted;
  std::size_t storages = 0;
  for (Shape* const shape : candidates_) {
    storages += shape->sizes().size();
    if (storages > kMaxPlanned && shape != candidates_.front()) break;
    if (auto request = shape->request(terms_)) wanted.push_back(*std::move(request));
  }
  return wanted;
}

void BudgetChooser::adopt(std::vector<PlanRequest>&& done) {
  for (PlanRequest& request : done)
    if (Shape* const shape = shapes_.with_id(request.shape)) shape->adopt(std::move(request));
}

Action BudgetChooser::choose(Bytes size, Bytes allocated, bool recomputable) {
  std::vector<PlanRequest> missing = requests(size, allocated, recomputable);
  for (PlanRequest& request : missing)
    request.run();
  adopt(std::move(missing));
  const std::size_t index = sizes_.size();
  const Action offloaded = recompute_ ? Action::kRecompute : Action::kOffload;
  Action action = candidates_.empty() && !keeps_unplanned_ ? offloaded : Action::kKeep;
  for (const Shape* const shape : candidates_) {
    const BudgetPlan* const plan = shape->plan();
    if (action != Action::kKeep || shape->fits()) continue;
    action = plan != nullptr ? plan->actions[index] : offloaded;
  }
  fully_offloaded_ = fully_offloaded_ && action == offloaded;
  fully_kept_ = fully_kept_ && action == Action::kKeep;
  recomputed_ = recomputed_ || action == Action::kRecompute;
  sizes_.push_back(size);
  recomputable_.push_back(recompute_);
  return action;
}

const Shape* BudgetChooser::only_planned() const {
  return candidates_.size() == 1 && candidates_.front()->plan() != nullptr ? candidates_.front()
                                                                           : nullptr;
}

std::optional<Bytes> BudgetChooser::beside() const {
  const Shape* const shape = only_planned();
  return shape != nullptr ? std::optional(shape->beside()) : std::nullopt;
}

const std::vector<ModelStateLeave>* BudgetChooser::model_state_leaves() const {
  const Shape* const shape = only_planned();
  return shape != nullptr ? &shape->model_state() : nullptr;
}

std::vector<std::size_t> BudgetChooser::due_with(std::size_t index) const {
  const Shape* const shape = only_planned();
  return shape != nullptr ? shape->due_with(index) : std::vector<std::size_t>();
}

std::optional<PlannedStep> BudgetChooser::planned_last() const {
  return planned_last_ != nullptr ? planned_last_->planned(terms_.foreseen) : std::nullopt;
}

void BudgetChooser::note_followed(Shape* shape) {
  followed_.push_front({shape, shape != nullptr ? shape->plans() : 0, memory_.host_stalled});
  if (followed_.size() > kMaxUntimed) followed_.pop_back();
}

void BudgetChooser::add_step_duration(double seconds, std::size_t steps_ago) {
  if (steps_ago >= followed_.size()) return;
  const Followed step = followed_[steps_ago];
  const auto shape = std::find_if(
      shapes_.begin(), shapes_.end(), [&](const Shape& each) { return &each == step.shape; });
  if (shape == shapes_.end() || shape->plans() != step.plan) return;
  shape->add_step_duration(seconds);
}

/// Drops the least recently used shape and all references to it.
void BudgetChooser::drop_oldest_shape() {
  const Shape& dropped = shapes_.oldest();
  std::erase(candidates_, &dropped);
  for (Shape** const last : {&recorded_last_, &planned_last_}) {
    if (*last == &dropped) *last = nullptr;
  }
  for (Followed& step : followed_) {
    if (step.shape == &dropped) step.shape = nullptr;
  }
  shapes_.drop(dropped);
}

BudgetChooser::Counts BudgetChooser::counts() const {
  Counts counts = counts_;
  counts.records = shapes_.records();
  return counts;
}

Status BudgetChooser::learn(KnownStep step) {
  SPILLWAY_RETURN_IF_ERROR(check_known(step));
  const Shape* const shape = shapes_.learn(std::move(step));
  if (shape == nullptr) return {};
  const std::vector<bool>& recomputable = shape->recomputable();
  if (std::find(recomputable.begin(), recomputable.end(), true) != recomputable.end())
    recompute_trial_.recomputed(shape->sizes().front());
  return {};
}

bool BudgetChooser::needs_times() const {
  if (const Shape* const planned = only_planned()) return planned->needs_times();
  return fully_offloaded_ &&
         std::none_of(candidates_.begin(), candidates_.end(), [](const Shape* shape) {
           return shape->plan() != nullptr;
         });
}

void BudgetChooser::time(const StepTimes& times, std::size_t steps_ago) {
  if (steps_ago == 0 && recorded_last_ != nullptr) {
    std::exchange(recorded_last_, nullptr)->time(times);
  } else if (steps_ago < followed_.size() && followed_[steps_ago].shape != nullptr) {
    const Followed& step = followed_[steps_ago];
    step.shape->refine(times, step.host_stalled);
  }
}

Shape* BudgetChooser::ended() const {
  const auto found =
      std::find_if(candidates_.begin(), candidates_.end(), [&](const Shape* candidate) {
        return candidate->sizes().size() == sizes_.size();
      });
  return found != candidates_.end() ? *found : nullptr;
}

EndedStep BudgetChooser::ending(const StepCurve& curve) const {
  EndedStep step{curve, fully_offloaded_, exceeds(curve.peak())};
  step.pressed = memory_.pressed;
  step.budget = budget();
  step.reserved_following_plan = memory_.reserved_following_plan;
  step.missing = memory_.missing;
  // Increments of single pages would need too many plans.
  step.over = saturating_sub(std::max(curve.peak(), memory_.reserved), budget());
  if (counts_reserved(budget())) step.over += Bytes{memory_.fewest_reserved.count() / kMoreShare};
  return step;
}

Shape& BudgetChooser::add_shape(const StepCurve& curve) {
  if (known_first_) ++counts_.mismatches;
  if (shapes_.full()) drop_oldest_shape();
  Shape& shape = shapes_.add(sizes_, recomputable_);
  if (fully_offloaded_) {
    shape.record(curve);
    recorded_last_ = &shape;
  } else if (keeps_unplanned_ && fully_kept_) {
    shape.kept(memory_.pressed || exceeds(curve.peak()));
  }
  return shape;
}

std::optional<BudgetShortage> BudgetChooser::end_step(const StepCurve& curve, bool optimized) {
  recorded_last_ = nullptr;
  if (sizes_.empty() || curve.allocated.empty()) {
    note_followed(nullptr);
    abandon_step();
    return std::nullopt;
  }
  const std::optional<Bytes> least = least_planned();
  Shape* shape = ended();
  Shape* followed = nullptr;  // it followed its plan
  if (shape != nullptr) {
    planned_last_ = shape;
    if (shape->plan() != nullptr) followed = shape;
    note_followed(followed);
    if (shape->end(ending(curve))) recorded_last_ = shape;
  } else {
    note_followed(nullptr);
    shape = &add_shape(curve);
  }
  shape->last_used = ++steps_;
  if (followed != nullptr) {
    over_in_a_row_ = 0;
  } else if (fully_offloaded_ && exceeds(curve.peak())) {
    ++over_in_a_row_;
  }
  if (fully_offloaded_) recompute_trial_.needed(sizes_.front(), needed_with(curve.peak()));
  const auto missing = shortage(curve, least, optimized);
  // The first overrun may be corrected by a plan, unless the step followed one.
  const bool planned = counts_reserved(budget()) && followed != nullptr;
  if (recomputed_) recompute_trial_.recomputed(sizes_.front());
  recompute_trial_.end_step(recomputed_ && exceeds(curve.peak()) &&
                            (planned || over_in_a_row_ > 1));
  if (optimized) {
    ++counts_.optimized_steps;
    optimized_begin_ = curve.at_begin();
    optimized_peak_ = curve.optimizer_phase_peak();
  }
  abandon_step();
  return missing;
}

void BudgetChooser::abandon_step() {
  sizes_.clear();
  recomputable_.clear();
  candidates_.clear();
  begun_ = false;
  fully_offloaded_ = fully_kept_ = true;
  recomputed_ = refused_ = false;
  known_first_ = false;
  memory_ = {};
}

}  // namespace spillway
