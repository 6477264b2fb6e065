// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/ratio_chooser.h"

#include <cmath>
#include <string>
#include <utility>

namespace spillway {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr unsigned kFractionBits = 40;

/// Shapes that are remembered. A job with ever new shapes starts over instead of growing without
/// end.
constexpr std::size_t kMostPlans = 256;

}  // namespace

Result<Ratio> Ratio::of(double value) {
  if (!(value >= 0.0 && value <= 1.0)) {
    return SPILLWAY_ERROR(
        Code::kInvalidArgument,
        "offload ratio " + std::to_string(value) + ": expected a number from 0 to 1");
  }
  return Ratio(static_cast<std::uint64_t>(std::ldexp(value, kFractionBits)));
}

double Ratio::value() const {
  return std::ldexp(static_cast<double>(numerator_), -static_cast<int>(kFractionBits));
}

Bytes Ratio::share_of(Bytes total) const {
  return Bytes{static_cast<std::uint64_t>((Wide{total.count()} * numerator_) >> kFractionBits)};
}

RatioChooser::Choice RatioChooser::choose(Bytes size) {
  if (sites_.empty()) {
    const auto known = plans_.find(size.count());
    plan_ = known == plans_.end() ? nullptr : &known->second;
  } else if (plan_ != nullptr &&
             (sites_.size() >= plan_->sites.size() || plan_->sites[sites_.size()].size != size)) {
    plan_ = nullptr;
    ++mismatches_;
  }

  Choice choice = Choice::kKeep;
  if (plan_ != nullptr) {
    choice = plan_->sites[sites_.size()].choice;
  } else if (moved_bytes_ + size <= ratio_.share_of(seen_bytes_ + size)) {
    choice = Choice::kMove;
  }

  sites_.push_back({size, choice, choice == Choice::kHeldElsewhere});
  if (choice != Choice::kHeldElsewhere) seen_bytes_ += size;
  if (choice == Choice::kMove) moved_bytes_ += size;
  return choice;
}

void RatioChooser::not_moved(std::size_t index) {
  SPILLWAY_CHECK(index < sites_.size());
  Site& site = sites_[index];
  if (site.choice != Choice::kMove) return;
  site.choice = Choice::kKeep;
  moved_bytes_ -= site.size;
}

void RatioChooser::alive_at_unpack(std::size_t index) {
  SPILLWAY_CHECK(index < sites_.size());
  sites_[index].alive = true;
}

void RatioChooser::end_step() {
  if (sites_.empty()) return;
  const std::uint64_t first = sites_.front().size.count();
  if (plans_.size() >= kMostPlans && !plans_.contains(first)) plans_.clear();
  plans_[first] = make_plan(std::exchange(sites_, {}));
  abandon_step();
}

void RatioChooser::abandon_step() {
  sites_.clear();
  plan_ = nullptr;
  seen_bytes_ = Bytes{};
  moved_bytes_ = Bytes{};
}

RatioChooser::Plan RatioChooser::make_plan(std::vector<Site> sites) const {
  Bytes movable;
  for (const Site& site : sites) {
    if (!site.alive) movable += site.size;
  }
  // Whatever is skipped did not fit: the rest of the share is smaller than it, and so than the
  // largest storage.
  const Bytes share = ratio_.share_of(movable);
  Bytes moved;
  for (Site& site : sites) {
    const bool fits = !site.alive && moved + site.size <= share;
    site.choice = site.alive ? Choice::kHeldElsewhere : fits ? Choice::kMove : Choice::kKeep;
    if (fits) moved += site.size;
  }
  return Plan{std::move(sites)};
}

}  // namespace spillway
