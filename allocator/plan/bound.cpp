// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/bound.h"

#include "allocator/base/check.h"
#include "allocator/plan/budget_plan.h"

#include <algorithm>
#include <iterator>
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

/// Least total cost of releasing bytes: items with a cost each, divisible, the cheapest per byte
/// first.
class CheapestFirst {
 public:
  void add(std::uint64_t bytes, double seconds) {
    if (bytes > 0) parts_.push_back({static_cast<double>(bytes), seconds});
  }

  /// Call it once, after all items were added.
  void order() {
    std::sort(parts_.begin(), parts_.end(), [](const Part& left, const Part& right) {
      return left.seconds * right.bytes < right.seconds * left.bytes;
    });
    for (Part& part : parts_) {
      part = {bytes_ += part.bytes, seconds_ += part.seconds};
    }
  }

  [[nodiscard]] double bytes() const { return bytes_; }

  /// The cost of that many bytes, or of all if there are fewer.
  [[nodiscard]] double seconds(double bytes) const {
    if (bytes <= 0) return 0;
    if (bytes >= bytes_) return seconds_;
    const auto part =
        std::lower_bound(parts_.begin(), parts_.end(), bytes, [](const Part& each, double most) {
          return each.bytes < most;
        });
    const Part before = part == parts_.begin() ? Part{0, 0} : *std::prev(part);
    return before.seconds +
           (part->seconds - before.seconds) * (bytes - before.bytes) / (part->bytes - before.bytes);
  }

 private:
  struct Part {
    double bytes;  // once ordered: cumulative
    double seconds;
  };

  std::vector<Part> parts_;
  double bytes_ = 0;
  double seconds_ = 0;
};

class Bound {
 public:
  Bound(const StepProfile& profile, Bytes budget)
      : profile_(profile),
        over_(profile.events()),
        recomputable_(profile.events()),
        recomputable_first_(profile.events()),
        again_(profile.events()),
        first_use_(first_uses(profile, std::vector(profile.storages.size(), Action::kOffload))),
        boundary_(std::min(profile.boundary, profile.events())) {
    const std::vector<Action> all(profile.storages.size(), Action::kKeep);
    const auto allocated = allocated_bytes(profile, all);
    for (std::size_t event = 0; event < allocated.size(); ++event)
      over_[event] = static_cast<double>(allocated[event]) - static_cast<double>(budget.count());
    price();
    count_recomputable();
    before_.push_back(0);
    for (const double seconds : profile.seconds)
      before_.push_back(before_.back() + seconds);
    find_first_and_last();
  }

  [[nodiscard]] StepBound at(double recomputed) const {
    const double forward = before_[boundary_];
    const double backward = before_.back() - forward;
    const double recompute = recompute_.seconds(recomputed);
    double out = forward;
    double in = backward + recompute;
    for (std::size_t event = 0; event < profile_.events(); ++event) {
      const double offloaded = over_[event] - std::min(recomputed, recomputable_[event]);
      if (offloaded <= 0) continue;
      if (event <= boundary_) {
        out = std::max(out, first_ + out_.seconds(offloaded) + forward - before_[event]);
      }
      // Storages that are offloaded a second time have been fetched before.
      const double first =
          over_[event] - again_[event] - std::min(recomputed, recomputable_first_[event]);
      const double back = in_.seconds(first);
      if (event >= boundary_ && back > 0) {
        in = std::max(in, before_[event] - forward + back + before_.back() - last_);
      }
    }
    StepBound bound{out + in, out, in, static_cast<std::uint64_t>(recomputed)};
    const double stall_out = out - forward;
    const double stall_in = in - backward - recompute;
    const double most = std::max({stall_out, stall_in, recompute});
    if (most > 0) {
      bound.limit = most == stall_out  ? StepBound::Limit::kLinkOut
                    : most == stall_in ? StepBound::Limit::kLinkIn
                                       : StepBound::Limit::kRecompute;
    }
    return bound;
  }

  [[nodiscard]] StepBound least() const {
    const double recomputed =
        where_least(recompute_.bytes(), 1, [&](double each) { return at(each).seconds; });
    const StepBound none = at(0);
    const StepBound found = at(recomputed);
    StepBound least = none.seconds <= found.seconds ? none : found;
    for (std::size_t event = 0; event < profile_.events(); ++event)
      raise_to_room_at(event, least);
    return least;
  }

 private:
  /// Bytes first offloaded by this event have been copied out by then, or are recomputed later;
  /// includes the remaining compute.
  [[nodiscard]] double through(std::size_t event, double recomputed) const {
    const double offloaded = over_[event] - again_[event] - recomputed;
    const double left = offloaded > 0 ? first_ + out_.seconds(offloaded) : 0;
    return std::max(before_[event], left) + before_.back() - before_[event] +
           recompute_.seconds(recomputed);
  }

  void raise_to_room_at(std::size_t event, StepBound& least) const {
    const double most = std::min(recomputable_first_[event], over_[event] - again_[event]);
    if (most < 0) return;
    // Any division of the bytes is at most the best one's cost.
    if (through(event, std::min(most, static_cast<double>(least.recomputed))) <= least.seconds)
      return;
    // With a slow link the function is steep.
    const double recomputed =
        where_least(most, kRounding * most, [&](double each) { return through(event, each); });
    const double seconds = through(event, recomputed) * (1 - 4 * kRounding);
    if (seconds <= least.seconds) return;
    const double again = recompute_.seconds(recomputed);
    const double stall = seconds - before_.back() - again;
    least.limit = stall > again ? StepBound::Limit::kLinkOut : StepBound::Limit::kRecompute;
    least.backward += seconds - least.seconds;
    least.seconds = seconds;
    least.recomputed = static_cast<std::uint64_t>(recomputed);
  }

  /// Adds the cost of releasing each storage's memory, by its possible actions.
  void price() {
    std::vector<std::uint64_t> offloaded(profile_.storages.size());
    for (const RecordedStep::Absence& each : profile_.memory.absences)
      offloaded[each.storage] = std::max(offloaded[each.storage], each.bytes);
    for (std::size_t storage = 0; storage < offloaded.size(); ++storage) {
      const StepProfile::Storage& known = profile_.storages[storage];
      // A storage without a later use, or with uses only as an operand, need not be fetched.
      const bool used = first_use_[storage] < profile_.events();
      out_.add(offloaded[storage], profile_.link.out_seconds(known.bytes));
      in_.add(offloaded[storage], used ? profile_.link.in_seconds(known.bytes) : 0);
      if (known.recompute) recompute_.add(offloaded[storage], used ? *known.recompute : 0);
    }
    out_.order();
    in_.order();
    recompute_.order();
  }

  /// An interval in which a storage is or may be offloaded; `first`: it has not been fetched
  /// before.
  template <typename Stretch>
  void count(const Stretch& stretch, bool first) {
    const auto add = [&](std::vector<double>& change) {
      change[stretch.from] += static_cast<double>(stretch.bytes);
      if (stretch.to < change.size()) change[stretch.to] -= static_cast<double>(stretch.bytes);
    };
    const bool recomputable = profile_.storages[stretch.storage].recompute.has_value();
    if (recomputable) add(recomputable_);
    if (recomputable && first) add(recomputable_first_);
    if (!first) add(again_);
  }

  void count_recomputable() {
    std::vector<bool> seen(profile_.storages.size());
    std::vector<std::size_t> again_from(profile_.storages.size(), profile_.events());
    for (const RecordedStep::Absence& offloaded : profile_.memory.absences) {
      const bool first = !seen[offloaded.storage];
      seen[offloaded.storage] = true;
      count(offloaded, first);
      if (!first)
        again_from[offloaded.storage] = std::min(again_from[offloaded.storage], offloaded.from);
    }
    // It may be offloaded for longer.
    for (const Operand& operand : profile_.memory.operands)
      count(operand, operand.from < again_from[operand.storage]);
    for (auto* const sums : {&recomputable_, &recomputable_first_, &again_})
      std::partial_sum(sums->begin(), sums->end(), sums->begin());
  }

  void find_first_and_last() {
    std::size_t first = profile_.events();
    std::size_t last = 0;
    for (const StepProfile::Storage& storage : profile_.storages)
      first = std::min(first, storage.saved);
    for (const std::size_t first_use : first_use_)
      if (first_use < profile_.events()) last = std::max(last, first_use);
    first_ = before_[first];
    last_ = before_[last];
  }

  const StepProfile& profile_;
  CheapestFirst out_;                         // O(b) of the header
  CheapestFirst in_;                          // I(b)
  CheapestFirst recompute_;                   // C(r)
  std::vector<double> over_;                  // K(k) - budget
  std::vector<double> recomputable_;          // R(k)
  std::vector<double> recomputable_first_;    // part of these that is offloaded for the first time
  std::vector<double> again_;                 // offloaded, and was offloaded before
  std::vector<double> before_;                // t(k), and t_end
  const std::vector<std::size_t> first_use_;  // by storage, without recomputation
  std::size_t boundary_;
  double first_ = 0;
  double last_ = 0;
};

}  // namespace

StepBound lower_bound(const StepProfile& profile, Bytes budget) {
  SPILLWAY_CHECK(profile.timed());
  return Bound(profile, budget).least();
}

}  // namespace spillway
