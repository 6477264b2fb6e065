// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/budget_chooser.h"

#include "allocator/plan/planner.h"

#include <algorithm>
#include <map>
#include <utility>

namespace spillway {
namespace {

/// Durations vary from step to step, because a device's clocks follow its power.
constexpr std::size_t kMaxSeconds = 9;

/// If reserved memory exceeds a budget, plans leave this share more free: of the smallest budget
/// that limits reserved bytes, a few pages.
constexpr std::uint64_t kMoreShare = 8;

/// Maximum number of device steps whose times arrive after later steps have ended on the host.
constexpr std::size_t kMaxUntimed = 16;

/// By storage, the storages whose fetch begins at its first use.
std::vector<std::vector<std::size_t>> due_in(const BudgetPlan& plan) {
  std::vector<std::vector<std::size_t>> due(plan.actions.size());
  const auto& first_use = plan.first_use;
  std::map<std::size_t, std::size_t> at;  // the first storage that is used at an event
  for (std::size_t storage = 0; storage < plan.actions.size(); ++storage)
    at.try_emplace(first_use[storage], storage);
  std::vector<std::size_t> order;
  for (std::size_t storage = 0; storage < plan.actions.size(); ++storage)
    if (plan.actions[storage] == Action::kOffload) order.push_back(storage);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
    return first_use[left] < first_use[right];
  });
  for (const std::size_t storage : order) {
    const auto trigger = at.lower_bound(plan.fetch[storage]);
    if (trigger == at.end() || trigger->first >= first_use[storage]) continue;
    due[trigger->second].push_back(storage);
  }
  return due;
}

}  // namespace

void BudgetChooser::make_plan(Shape& shape, Bytes allocated) const {
  if (!shape.recorded) return;
  RecordedStep& recorded = *shape.recorded;
  if (!shape.settled && allocated > recorded.begin) {
    // A step that would exceed the budget is not recorded a second time.
    RecordedStep again = recorded;
    again.begin_with(allocated);
    if (again.most() + foreseen_.margin(budget_, shape.sizes.size()) > budget_) {
      shape.rebased = shape.to_correct = true;
      recorded = std::move(again);
    }
  }
  shape.settled = shape.settled || allocated == recorded.begin;
  if (!shape.settled || (shape.plan && allocated == shape.allocated_at_begin)) return;
  // The budget of the recorded step if it had begun like this one. If another run recorded it,
  // memory that is not allocated yet may be allocated in it, such as workspaces and optimizer
  // states.
  Bytes allowed = saturating_sub(saturating_sub(budget_ + recorded.begin, allocated), shape.margin);
  if (shape.learnt) allowed = std::min(allowed, budget_);
  if (!shape.profile) {
    shape.profile = profile_of(recorded,
                               shape.sizes,
                               shape.recomputable,
                               shape.times ? &shape.times->believed() : nullptr);
    shape.profile->free_at_once = free_at_once_;
  }
  shape.reserved_margin.plan(foreseen_.margin(budget_, shape.sizes.size()));
  Bytes within = saturating_sub(allowed, shape.reserved_margin.bytes());
  // This close to its minimum, plan for the minimum.
  const Bytes least = least_peak(*shape.profile);
  if (within >= least && within <= least + foreseen_.spare(budget_, shape.sizes.size()))
    within = least;
  BudgetPlan plan = plan_for(*shape.profile, within);
  const bool same =
      shape.plan && shape.plan->actions == plan.actions && shape.plan->fetch == plan.fetch;
  if (!same) {
    shape.seconds.clear();
    ++shape.plans;
  }
  shape.plan = std::move(plan);
  shape.allocated_at_begin = allocated;
  shape.budget = slowdown_ > 0 ? shape.plan->budget : allowed;
  const bool helps = shape.rebased && shape.plan->peak < recorded.most();
  if (shape.plan->peak > allowed && !helps) return shape.plan.reset();
  shape.due = due_in(*shape.plan);
  shape.holds = foreseen_.budget_for(planned_peak(shape), shape.sizes.size());
}

/// The peak of a step that follows its plan.
Bytes BudgetChooser::planned_peak(const Shape& shape) {
  // Either may be smaller.
  const std::uint64_t more = shape.allocated_at_begin.count() - shape.recorded->begin.count();
  return Bytes{shape.plan->peak.count() + more};
}

Bytes BudgetChooser::reserved_following_plans() const {
  Bytes most;
  for (const Shape& shape : shapes_)
    most = std::max(most, shape.holds);
  return most;
}

void BudgetChooser::frees_at_once() {
  if (std::exchange(free_at_once_, true)) return;
  for (Shape& shape : shapes_) {
    shape.profile.reset();
    shape.plan.reset();
  }
}

BudgetPlan BudgetChooser::plan_for(const StepProfile& profile, Bytes allowed) const {
  return slowdown_ > 0 && profile.timed() ? plan_within(profile, slowdown_, allowed)
                                          : plan_step(profile, allowed);
}

Action BudgetChooser::choose(Bytes size, Bytes allocated, bool recomputable) {
  const std::size_t index = sizes_.size();
  if (index == 0) recompute_trial_.begin_step(size);
  recomputable = recomputable && recompute_trial_.on();
  if (index == 0) {
    for (Shape& shape : shapes_)
      candidates_.push_back(&shape);
  }
  std::erase_if(candidates_, [&](const Shape* shape) {
    return index >= shape->sizes.size() || shape->sizes[index] != size ||
           shape->recomputable[index] != recomputable;
  });
  if (index == 0) {
    known_first_ = !candidates_.empty();
    for (Shape* const shape : candidates_)
      make_plan(*shape, allocated);
  }
  const Action offloaded = recomputable ? Action::kRecompute : Action::kOffload;
  Action action = candidates_.empty() ? offloaded : Action::kKeep;
  for (const Shape* const shape : candidates_) {
    const Action planned = shape->plan ? shape->plan->actions[index] : offloaded;
    if (action == Action::kKeep) action = planned;
  }
  whole_ = whole_ && action == offloaded;
  recomputed_ = recomputed_ || action == Action::kRecompute;
  sizes_.push_back(size);
  recomputable_.push_back(recomputable);
  return action;
}

const BudgetChooser::Shape* BudgetChooser::only_planned() const {
  return candidates_.size() == 1 && candidates_.front()->plan ? candidates_.front() : nullptr;
}

std::vector<std::size_t> BudgetChooser::due_with(std::size_t index) const {
  const Shape* const shape = only_planned();
  return shape != nullptr && index < shape->due.size() ? shape->due[index]
                                                       : std::vector<std::size_t>();
}

std::optional<PlannedStep> BudgetChooser::planned_last() const {
  const Shape* const shape = planned_last_;
  if (shape == nullptr || !shape->plan || !shape->profile->timed()) return std::nullopt;
  PlannedStep step{*shape->profile,
                   *shape->plan,
                   shape->budget,
                   shape->allocated_at_begin,
                   foreseen_,
                   std::nullopt};
  std::vector<double> seconds(shape->seconds.begin(), shape->seconds.end());
  if (!seconds.empty()) step.seconds = median(std::move(seconds));
  return step;
}

/// Refines times by the last step, which followed a plan.
void BudgetChooser::refine_last(const StepTimes& times) {
  Shape* const shape = followed_last_;
  if (shape == nullptr || !shape->plan || !shape->times) return;
  if (!shape->times->saw(times, !settled_last_)) return;
  ++records_;
  shape->profile.reset();
  shape->plan.reset();
}

void BudgetChooser::note_followed(const Shape* shape) {
  followed_.push_front({shape, shape != nullptr ? shape->plans : 0});
  if (followed_.size() > kMaxUntimed) followed_.pop_back();
}

void BudgetChooser::took(double seconds, std::size_t steps_ago) {
  if (steps_ago >= followed_.size()) return;
  const Followed step = followed_[steps_ago];
  const auto shape = std::find_if(
      shapes_.begin(), shapes_.end(), [&](const Shape& each) { return &each == step.shape; });
  if (shape == shapes_.end() || shape->plans != step.plan) return;
  shape->seconds.push_back(seconds);
  if (shape->seconds.size() > kMaxSeconds) shape->seconds.pop_front();
}

/// Drops the least recently used shape.
void BudgetChooser::drop_oldest() {
  const auto oldest =
      std::min_element(shapes_.begin(), shapes_.end(), [](const Shape& left, const Shape& right) {
        return left.last_used < right.last_used;
      });
  const Shape* const dropped = &*oldest;
  std::erase(candidates_, dropped);
  for (Shape** const last : {&recorded_last_, &planned_last_, &followed_last_}) {
    if (*last == dropped) *last = nullptr;
  }
  for (Followed& step : followed_) {
    if (step.shape == dropped) step.shape = nullptr;
  }
  shapes_.erase(oldest);
}

std::vector<KnownStep> BudgetChooser::known() const {
  std::vector<KnownStep> known;
  for (const Shape& shape : shapes_) {
    if (!shape.recorded || !shape.settled || shape.to_correct) continue;
    KnownStep& step =
        known.emplace_back(KnownStep{shape.sizes, shape.recomputable, *shape.recorded, {}});
    if (shape.times) step.times = shape.times->believed();
  }
  return known;
}

Status BudgetChooser::learn(KnownStep step) {
  SPILLWAY_RETURN_IF_ERROR(check_known(step));
  const bool there = std::any_of(shapes_.begin(), shapes_.end(), [&](const Shape& shape) {
    return shape.sizes == step.sizes && shape.recomputable == step.recomputable;
  });
  if (there || shapes_.size() >= kMaxShapes) return {};
  Shape& shape = shapes_.emplace_back();
  shape.sizes = std::move(step.sizes);
  shape.recomputable = std::move(step.recomputable);
  shape.recorded = std::move(step.recorded);
  if (step.times) shape.times.emplace(*std::move(step.times));
  shape.settled = shape.learnt = true;
  if (std::find(shape.recomputable.begin(), shape.recomputable.end(), true) !=
      shape.recomputable.end())
    recompute_trial_.recomputed(shape.sizes.front());
  return {};
}

bool BudgetChooser::recording() const {
  const Shape* const planned = only_planned();
  if (planned != nullptr) return planned->times && planned->times->needed();
  return whole_ && std::none_of(candidates_.begin(), candidates_.end(), [](const Shape* shape) {
           return shape->plan.has_value();
         });
}

void BudgetChooser::time(const std::optional<StepTimes>& times) {
  Shape* const shape = std::exchange(recorded_last_, nullptr);
  if (times) ++timed_;
  if (shape == nullptr && times) return refine_last(*times);
  if (shape == nullptr || !times) return;
  shape->times.emplace(*times);
  ++records_;
  shape->profile.reset();
  shape->plan.reset();
}

BudgetChooser::Shape* BudgetChooser::ended() const {
  const auto found =
      std::find_if(candidates_.begin(), candidates_.end(), [&](const Shape* candidate) {
        return candidate->sizes.size() == sizes_.size();
      });
  return found != candidates_.end() ? *found : nullptr;
}

std::optional<BudgetShortage> BudgetChooser::end_step(const StepCurve& curve, bool optimized) {
  if (sizes_.empty() || curve.allocated.empty()) {
    note_followed(nullptr);
    abandon_step();
    return std::nullopt;
  }
  const std::optional<Bytes> least = least_planned();
  Shape* shape = ended();
  if (shape != nullptr) {
    planned_last_ = shape;
    followed_last_ = shape->plan ? shape : nullptr;
    note_followed(followed_last_);
    end_known(*shape, curve);
  } else {
    followed_last_ = nullptr;
    note_followed(nullptr);
    if (known_first_) ++mismatches_;
    if (shapes_.size() >= kMaxShapes) drop_oldest();
    shape = &shapes_.emplace_back();
    shape->sizes = sizes_;
    shape->recomputable = recomputable_;
    if (whole_) record(*shape, curve);
  }
  shape->last_used = ++steps_;
  if (followed_last_ != nullptr) {
    over_in_a_row_ = 0;
  } else if (whole_ && exceeds(curve.peak())) {
    ++over_in_a_row_;
  }
  if (whole_) recompute_trial_.needed(sizes_.front(), needed_with(curve.peak()));
  settled_last_ = settled_;
  const auto missing = shortage(curve, least, optimized);
  // The first overrun may be corrected by a plan, unless the step followed one.
  const bool planned = counts_reserved(budget_) && followed_last_ != nullptr;
  if (recomputed_) recompute_trial_.recomputed(sizes_.front());
  recompute_trial_.end_step(recomputed_ && exceeds(curve.peak()) &&
                            (planned || over_in_a_row_ > 1));
  if (optimized) {
    ++optimized_steps_;
    optimized_begin_ = Bytes{curve.allocated.front()};
    optimized_peak_ = curve.optimizer_phase_peak();
  }
  abandon_step();
  return missing;
}

void BudgetChooser::end_known(Shape& shape, const StepCurve& curve) {
  if (std::exchange(shape.learnt, false) && shape.allocated_at_begin < shape.recorded->begin) {
    shape.plan.reset();  // from here on, steps begin with the present allocated bytes
  } else if (whole_ && !shape.plan) {
    // Only the first recording may have to be repeated.
    shape.settled = shape.settled || shape.recorded;
    record(shape, curve);
  } else if (exceeds(curve.peak())) {
    const Bytes more = saturating_sub(std::max(curve.peak(), reserved_), budget_);
    // Increments of single pages would need too many plans.
    if (!shape.rebased) {
      shape.margin += more;
      if (counts_reserved(budget_)) shape.margin += Bytes{fewest_reserved_.count() / kMoreShare};
    }
    shape.recorded.reset();
    shape.profile.reset();
    shape.plan.reset();
  } else if (shape.plan && correct(shape, curve)) {
    shape.profile.reset();
    shape.plan.reset();
  } else if (shape.plan) {
    ReservedMargin& margin = shape.reserved_margin;
    const bool least = has_least(shape);
    const bool misplaced =
        !shortfall_.zero() && margin.observe_shortfall(shortfall_, budget_, least);
    const bool grows = !reserved_following_plan_.zero() &&
                       margin.observe(reserved_following_plan_, budget_, least);
    if (misplaced || grows) shape.plan.reset();
  }
}

/// Handles a step that followed a plan. True if it was the first one after a rebase, and needed
/// less than planned.
bool BudgetChooser::correct(Shape& shape, const StepCurve& curve) {
  if (!std::exchange(shape.to_correct, false)) return false;
  ++records_;
  RecordedStep& recorded = *shape.recorded;
  const auto most_before = [](const std::vector<std::uint64_t>& allocated,
                              std::size_t optimizer_begin) {
    const auto end = allocated.begin() +
                     static_cast<std::ptrdiff_t>(std::min(optimizer_begin, allocated.size()));
    return allocated.begin() == end ? 0 : *std::max_element(allocated.begin(), end);
  };
  const auto planned = allocated_bytes(*shape.profile, shape.plan->actions, shape.plan->fetch);
  const std::uint64_t expected = most_before(planned, recorded.optimizer_begin);
  // At its beginning, another step may have matched this shape.
  const std::uint64_t needed = most_before(curve.allocated, curve.optimizer_begin) +
                               recorded.begin.count() - shape.allocated_at_begin.count();
  if (needed >= expected) return false;
  recorded.needed_less(Bytes{expected - needed});
  return true;
}

void BudgetChooser::record(Shape& shape, const StepCurve& curve) {
  shape.recorded.emplace(curve, sizes_.size());
  shape.rebased = shape.to_correct = false;
  shape.times.reset();
  shape.profile.reset();
  shape.plan.reset();
  recorded_last_ = &shape;
  ++records_;
}

void BudgetChooser::abandon_step() {
  sizes_.clear();
  recomputable_.clear();
  candidates_.clear();
  whole_ = true;
  recomputed_ = refused_ = false;
  known_first_ = false;
  reserved_following_plan_ = shortfall_ = reserved_ = Bytes{};
  settled_ = true;
}

}  // namespace spillway
