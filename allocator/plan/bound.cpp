// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/bound.h"

#include "allocator/base/check.h"
#include "allocator/plan/active_costs.h"
#include "allocator/plan/budget_plan.h"
#include "allocator/plan/stretches.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace spillway {
namespace {

constexpr double kRounding = 1e-9;

/// The minimum position of a convex function on [0, most], to `width`.
template <typename Function>
double where_least(double most, double width, Function function) {
  double low = 0;
  double high = most;
  while (high - low > width) {
    const double third = (high - low) / 3;
    if (function(low + third) <= function(high - third)) {
      high -= third;
    } else {
      low += third;
    }
  }
  return (low + high) / 2;
}

std::vector<ActiveCosts::Item> items_of(const std::vector<Stretch>& stretches,
                                        double Stretch::*seconds) {
  std::vector<ActiveCosts::Item> items;
  items.reserve(stretches.size());
  for (const Stretch& stretch : stretches)
    items.push_back({stretch.bytes, stretch.*seconds});
  return items;
}

/// Each candidate that can be recomputed, with its largest window.
std::vector<ActiveCosts::Item> recomputations_of(const StepProfile& profile,
                                                 const std::vector<std::size_t>& first_use) {
  std::vector<ActiveCosts::Item> items;
  for (std::size_t candidate = 0; candidate < profile.candidates.size(); ++candidate) {
    const Candidate& known = profile.candidates[candidate];
    if (!known.recompute) continue;
    std::uint64_t bytes = 0;
    for (const Window& window : known.windows)
      bytes = std::max(bytes, window.bytes);
    // One that only others use need not be recomputed.
    const bool used = first_use[candidate] < profile.events();
    items.push_back({static_cast<double>(bytes), used ? *known.recompute : 0});
  }
  return items;
}

class Bound {
 public:
  Bound(const StepProfile& profile, Bytes budget)
      : events_(profile.events()),
        first_use_(first_uses(profile, std::vector(profile.candidates.size(), Action::kOffload))),
        stretches_(stretches_of(profile, first_use_)),
        out_(items_of(stretches_, &Stretch::out)),
        in_(items_of(stretches_, &Stretch::in)),
        recompute_(recomputations_of(profile, first_use_)),
        over_(events_),
        recomputable_(events_ + 1),
        recomputable_first_(events_ + 1),
        begins_(events_ + 1),
        ends_(events_ + 1),
        before_(events_ + 1) {
    const std::vector<Action> all(profile.candidates.size(), Action::kKeep);
    const auto allocated = allocated_bytes(profile, all);
    for (std::size_t event = 0; event < events_; ++event)
      over_[event] = static_cast<double>(allocated[event]) - static_cast<double>(budget.count());
    std::partial_sum(profile.seconds.begin(), profile.seconds.end(), before_.begin() + 1);
    recompute_.activate_all();
    index_stretches();
    find_limits(profile);
  }

  [[nodiscard]] StepBound least() {
    const double recomputed =
        where_least(recompute_.bytes(), 1, [&](double each) { return at(each).seconds; });
    const StepBound none = at(0);
    const StepBound found = at(recomputed);
    StepBound least = none.seconds <= found.seconds ? none : found;
    each_event([&](std::size_t event) { raise_to_room_at(event, least); });
    return least;
  }

 private:
  /// The earliest end of the copies out that this many bytes need, of the active stretches.
  [[nodiscard]] double copied_out(double bytes) const {
    const double seconds = out_.seconds(bytes);
    return seconds > 0 ? first_ + seconds : 0;
  }

  /// The bound of steps that recompute that many bytes.
  [[nodiscard]] StepBound at(double recomputed) {
    out_until_.assign(events_ + 1, 0);
    in_since_.assign(events_ + 1, 0);
    const double end = before_.back();
    each_event([&](std::size_t event) {
      const double offloaded = over_[event] - std::min(recomputed, recomputable_[event]);
      out_until_[event] = std::max(0.0, copied_out(offloaded) - before_[event]);
      const double back =
          in_.seconds(over_[event] - std::min(recomputed, recomputable_first_[event]));
      if (back > 0) in_since_[event] = before_[event] + back + end - last_;
    });
    for (std::size_t event = 1; event <= events_; ++event)
      out_until_[event] = std::max(out_until_[event], out_until_[event - 1]);
    for (std::size_t event = events_; event-- > 0;)
      in_since_[event] = std::max(in_since_[event], in_since_[event + 1]);

    const double recompute = recompute_.seconds(recomputed);
    StepBound bound{end + recompute, static_cast<std::uint64_t>(recomputed)};
    if (recompute > 0) bound.limit = StepBound::Limit::kRecompute;
    for (std::size_t split = 0; split <= events_; ++split) {
      const double again = split <= first_recompute_ ? recompute : 0;
      const double plain = end - before_[split] + again;
      const double stall_out = out_until_[split];
      const double stall_in = std::max(0.0, in_since_[split] - before_[split] - plain);
      const double seconds = before_[split] + stall_out + plain + stall_in;
      if (seconds <= bound.seconds) continue;
      bound.seconds = seconds;
      const double most = std::max({stall_out, stall_in, again});
      bound.limit = most == stall_out  ? StepBound::Limit::kLinkOut
                    : most == stall_in ? StepBound::Limit::kLinkIn
                                       : StepBound::Limit::kRecompute;
    }
    return bound;
  }

  /// Bytes that are absent at this event for the first time have been copied out by then, or are
  /// recomputed later; includes the remaining compute.
  [[nodiscard]] double through(std::size_t event, double needed, double recomputed) const {
    return std::max(before_[event], copied_out(needed - recomputed)) + before_.back() -
           before_[event] + recompute_.seconds(recomputed);
  }

  void raise_to_room_at(std::size_t event, StepBound& least) const {
    // What is recomputed a second time was recomputed before the event, too.
    const double needed = over_[event] - (recomputable_[event] - recomputable_first_[event]);
    const double most = std::min(recomputable_first_[event], needed);
    if (most < 0) return;
    // Any division of the bytes is at most the best one's cost.
    const double some = std::min(most, static_cast<double>(least.recomputed));
    if (through(event, needed, some) <= least.seconds) return;
    // With a slow link the function is steep.
    const double recomputed = where_least(
        most, kRounding * most, [&](double each) { return through(event, needed, each); });
    const double seconds = through(event, needed, recomputed) * (1 - 4 * kRounding);
    if (seconds <= least.seconds) return;
    const double again = recompute_.seconds(recomputed);
    const double stall = seconds - before_.back() - again;
    least.limit = stall > again ? StepBound::Limit::kLinkOut : StepBound::Limit::kRecompute;
    least.seconds = seconds;
    least.recomputed = static_cast<std::uint64_t>(recomputed);
  }

  /// Calls the function for each event, with the costs of the stretches at that event active.
  template <typename Function>
  void each_event(Function function) {
    out_.deactivate_all();
    in_.deactivate_all();
    for (std::size_t event = 0; event < events_; ++event) {
      for (const std::size_t each : ends_[event]) {
        out_.deactivate(each);
        in_.deactivate(each);
      }
      for (const std::size_t each : begins_[event]) {
        out_.activate(each);
        in_.activate(each);
      }
      function(event);
    }
  }

  void index_stretches() {
    for (std::size_t each = 0; each < stretches_.size(); ++each) {
      const Stretch& stretch = stretches_[each];
      begins_[stretch.from].push_back(each);
      ends_[stretch.to].push_back(each);
      for (auto* const sums : {&recomputable_, &recomputable_first_}) {
        if (!stretch.recomputable || (sums == &recomputable_first_ && !stretch.first)) continue;
        (*sums)[stretch.from] += stretch.bytes;
        (*sums)[stretch.to] -= stretch.bytes;
      }
    }
    for (auto* const sums : {&recomputable_, &recomputable_first_})
      std::partial_sum(sums->begin(), sums->end(), sums->begin());
  }

  void find_limits(const StepProfile& profile) {
    std::size_t first = events_;
    std::size_t last = 0;
    first_recompute_ = events_;
    for (std::size_t candidate = 0; candidate < profile.candidates.size(); ++candidate) {
      const Candidate& known = profile.candidates[candidate];
      for (const Window& window : known.windows) {
        if (window.out > 0) first = std::min(first, window.ready);
        if (window.in > 0) last = std::max(last, window.to);
      }
      if (first_use_[candidate] < events_) last = std::max(last, first_use_[candidate]);
      if (known.recompute && !known.windows.empty())
        first_recompute_ = std::min(first_recompute_, known.windows.front().to);
    }
    first_ = before_[first];
    last_ = before_[last];
  }

  const std::size_t events_;
  const std::vector<std::size_t> first_use_;  // by candidate, with everything offloaded
  const std::vector<Stretch> stretches_;
  ActiveCosts out_;                               // O of the header
  ActiveCosts in_;                                // I
  ActiveCosts recompute_;                         // C
  std::vector<double> over_;                      // K(k) - budget
  std::vector<double> recomputable_;              // R(k)
  std::vector<double> recomputable_first_;        // part of these that was not recomputed before
  std::vector<std::vector<std::size_t>> begins_;  // stretches by event
  std::vector<std::vector<std::size_t>> ends_;
  std::vector<double> before_;       // t(k), and t_end
  std::size_t first_recompute_ = 0;  // the first use that may recompute
  double first_ = 0;                 // t_first
  double last_ = 0;                  // t_last
  std::vector<double> out_until_;    // by event, in the latest at()
  std::vector<double> in_since_;
};

}  // namespace

StepBound lower_bound(const StepProfile& profile, Bytes budget) {
  SPILLWAY_CHECK(profile.timed());
  return Bound(profile, budget).least();
}

}  // namespace spillway
