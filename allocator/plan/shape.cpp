// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/shape.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

/// Durations vary from step to step, because a device's clocks follow its power.
constexpr std::size_t kMaxSeconds = 9;
/// Steps after which a plan has been tried, or earlier when its times are known. The first ones map
/// memory, so the fastest one counts.
constexpr std::size_t kTried = 8;
/// Model state that differs by this share of the budget needs no other plan.
constexpr std::uint64_t kAlike = 64;
/// A plan is slower than the one before if its fastest step takes this much longer.
constexpr double kSlower = 1.005;

std::uint64_t most_before(const std::vector<std::uint64_t>& allocated, std::size_t event) {
  const auto end =
      allocated.begin() + static_cast<std::ptrdiff_t>(std::min(event, allocated.size()));
  return allocated.begin() == end ? 0 : *std::max_element(allocated.begin(), end);
}

}  // namespace

Shape::Shape(std::uint64_t id, std::vector<Bytes> sizes, std::vector<bool> recomputable)
    : id_(id), sizes_(std::move(sizes)), recomputable_(std::move(recomputable)) {}

Shape::Shape(std::uint64_t id, KnownStep step)
    : id_(id),
      sizes_(std::move(step.sizes)),
      recomputable_(std::move(step.recomputable)),
      state_(ShapeState::kImported),
      recorded_(std::move(step.recorded)) {
  if (step.times) times_.emplace(*std::move(step.times));
}

void Shape::begin(Bytes allocated, const PlanTerms& terms) {
  begins_with_ = allocated;
  if (state_ != ShapeState::kRecorded) return;
  if (allocated == recorded_->begin) return on(ShapeEvent::kBeganAlike);
  if (allocated < recorded_->begin) return;
  // A step that would exceed the budget is not recorded a second time.
  const Bytes most = recorded_->most_beginning_with(allocated);
  if (most + terms.foreseen.margin(terms.budget, sizes_.size()) <= terms.budget) return;
  recorded_->begin_with(allocated);
  drop_profile();
  on(ShapeEvent::kAdjusted);
}

bool Shape::Planned::suits(const PlanTerms& terms) const {
  const Bytes most = std::max(model_state.bytes, terms.model_state.bytes);
  const Bytes least = std::min(model_state.bytes, terms.model_state.bytes);
  if (model_state.streams != terms.model_state.streams) return false;
  return most - least <= Bytes{terms.budget.count() / kAlike};
}

std::optional<PlanRequest> Shape::request(const PlanTerms& terms) {
  if (!has_recording(state_) || state_ == ShapeState::kRecorded) return std::nullopt;
  if (planned_ && planned_->begin == begins_with_ && planned_->suits(terms)) return std::nullopt;
  if (rejected_ && *rejected_ == std::pair(version_, begins_with_)) return std::nullopt;
  PlanRequest request;
  request.shape = id_;
  request.version = version_;
  request.terms = terms;
  request.allocated = begins_with_;
  // The budget of the recorded step if it had begun like this one. If another run recorded it,
  // memory that is not allocated yet may be allocated in it, such as workspaces and optimizer
  // states.
  request.allowed =
      saturating_sub(saturating_sub(terms.budget + recorded_->begin, begins_with_), margin_);
  if (state_ == ShapeState::kImported) request.allowed = std::min(request.allowed, terms.budget);
  reserved_margin_.plan(terms.foreseen.margin(terms.budget, sizes_.size()));
  request.margin = reserved_margin_.bytes();
  request.sizes = sizes_;
  if (const BudgetPlan* const last = last_plan()) request.before = *last;
  request.profile = profile_;
  if (!profile_) {
    request.recomputable = recomputable_;
    request.recorded = *recorded_;
    if (times_) request.times = times_->believed();
  }
  return request;
}

void Shape::adopt(PlanRequest&& done) {
  if (done.version != version_) return;
  profile_ = std::move(done.profile);
  const BudgetPlan* const last = last_plan();
  const bool same = last != nullptr && last->actions == done.plan.actions &&
                    last->fetch == done.plan.fetch && last->model_state == done.plan.model_state;
  if (!same) {
    seconds_.clear();
    ++plans_;
  }
  const bool helps = is_adjusted(state_) && done.plan.peak < recorded_->most();
  if (done.plan.peak > done.allowed && !helps) {
    drop_plan();
    rejected_ = {version_, done.allocated};
    return;
  }
  const bool shares = !done.terms.model_state.bytes.zero() && done.plan.budget < done.allowed;
  const Bytes wanted = done.plan.budget + (shares ? done.margin : Bytes{});
  const Bytes budget =
      done.terms.slowdown > 0 || shares ? std::min(wanted, done.allowed) : done.allowed;
  planned_ = Planned{std::move(done.plan),
                     std::move(done.due),
                     done.allocated,
                     budget,
                     shares ? done.allowed - budget : Bytes{},
                     done.terms.model_state};
  before_.reset();
  predicted_reserved_ = done.terms.foreseen.budget_for(planned_peak(), sizes_.size());
}

const BudgetPlan* Shape::last_plan() const {
  if (planned_) return &planned_->plan;
  return before_ ? &*before_ : nullptr;
}

const BudgetPlan* Shape::plan() const {
  return planned_ && planned_->begin >= begins_with_ ? &planned_->plan : nullptr;
}

std::vector<std::size_t> Shape::due_with(std::size_t index) const {
  return plan() != nullptr && index < planned_->due.size() ? planned_->due[index]
                                                           : std::vector<std::size_t>();
}

bool Shape::has_least_plan() const {
  const BudgetPlan& plan = planned_->plan;
  return plan.peak <= plan.least || plan.peak > plan.budget;
}

Bytes Shape::planned_peak() const {
  // Either may be smaller.
  const std::uint64_t more = begins_with_.count() - recorded_->begin.count();
  return Bytes{planned_->plan.peak.count() + more};
}

bool Shape::end(const EndedStep& step) {
  const bool learned = state_ == ShapeState::kImported;
  on(ShapeEvent::kEnded);
  if (learned && begins_with_ < recorded_->begin) {
    drop_plan();  // from here on, steps begin with the present allocated bytes
  } else if (step.fully_offloaded && plan() == nullptr) {
    record(step.curve);
    return true;
  } else if (fits() && step.pressed) {
    on(ShapeEvent::kPressed);
  } else if (step.exceeded) {
    if (!is_adjusted(state_)) margin_ += step.over;
    drop_recording();
    on(ShapeEvent::kExceeded);
  } else if (plan() != nullptr) {
    const bool first = state_ == ShapeState::kAdjusted;
    if (first) ++records_;
    if (first && correct(step.curve)) {
      drop_profile();
    } else {
      const Bytes reserved = step.reserved_following_plan;
      // No plan needs less than the least one.
      const bool may_need_less = !has_least_plan();
      if (may_need_less && !step.missing.zero() && !keeps_missing_) {
        reserved_margin_.lacks(step.missing, step.budget);
        replace_plan(true);
      } else if (may_need_less && !reserved.zero() &&
                 reserved_margin_.observe(reserved, step.budget)) {
        drop_plan();
      }
    }
    on(ShapeEvent::kFollowed);
  }
  return false;
}

bool Shape::correct(const StepCurve& curve) {
  const auto planned = allocated_bytes(*profile_, planned_->plan.actions, planned_->plan.fetch);
  const std::uint64_t expected = most_before(planned, recorded_->optimizer_begin);
  // At its beginning, another step may have matched this shape.
  const std::uint64_t needed = most_before(curve.allocated, curve.optimizer_begin) +
                               recorded_->begin.count() - begins_with_.count();
  if (needed >= expected) return false;
  recorded_->needed_less(Bytes{expected - needed});
  return true;
}

void Shape::record(const StepCurve& curve) {
  drop_recording();
  recorded_.emplace(curve, sizes_.size());
  on(ShapeEvent::kRecorded);
  ++records_;
}

void Shape::drop_plan() {
  planned_.reset();
  replaced_.reset();
  ++version_;
}

void Shape::drop_profile() {
  profile_.reset();
  drop_plan();
}

void Shape::drop_recording() {
  recorded_.reset();
  times_.reset();
  before_.reset();
  keeps_missing_ = false;
  drop_profile();
}

void Shape::time(const StepTimes& times) {
  times_.emplace(times);
  drop_profile();
  ++records_;
}

void Shape::refine(const StepTimes& times, bool stalled) {
  if (plan() == nullptr || !times_ || !times_->saw(times, stalled)) return;
  before_ = planned_->plan;
  profile_.reset();
  replace_plan(false);
  ++records_;
}

void Shape::replace_plan(bool has_missing) {
  std::optional<Replaced> fastest = std::move(replaced_);
  if (!seconds_.empty()) {
    const double seconds = *std::min_element(seconds_.begin(), seconds_.end());
    if (!fastest || seconds < fastest->seconds)
      fastest = Replaced{*std::move(planned_), seconds, has_missing};
  }
  drop_plan();
  replaced_ = std::move(fastest);
}

bool Shape::needs_times() const {
  return times_ && times_->needed();
}

void Shape::add_step_duration(double seconds) {
  seconds_.push_back(seconds);
  if (seconds_.size() > kMaxSeconds) seconds_.pop_front();
  if (!replaced_ || !planned_) return;
  if ((needs_times() || replaced_->has_missing) && seconds_.size() < kTried) return;
  const double fastest = *std::min_element(seconds_.begin(), seconds_.end());
  Replaced replaced = *std::exchange(replaced_, std::nullopt);
  if (fastest <= replaced.seconds * kSlower) return;
  planned_ = std::move(replaced.planned);
  keeps_missing_ = keeps_missing_ || replaced.has_missing;
  if (times_) times_->stop();
  seconds_.clear();
  ++plans_;
}

std::optional<PlannedStep> Shape::planned(const PredictedReserved& foreseen) const {
  if (plan() == nullptr || !profile_->timed()) return std::nullopt;
  PlannedStep step{*profile_,
                   planned_->plan,
                   planned_->budget,
                   planned_->begin,
                   foreseen,
                   planned_->beside,
                   std::nullopt};
  std::vector<double> seconds(seconds_.begin(), seconds_.end());
  if (!seconds.empty()) step.seconds = median(std::move(seconds));
  return step;
}

std::optional<KnownStep> Shape::known() const {
  if (!has_recording(state_) || state_ == ShapeState::kRecorded || state_ == ShapeState::kAdjusted)
    return std::nullopt;
  KnownStep step{sizes_, recomputable_, *recorded_, {}};
  if (times_) step.times = times_->believed();
  return step;
}

}  // namespace spillway
