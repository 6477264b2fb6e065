// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/bound.h"

#include "allocator/base/check.h"
#include "allocator/plan/budget_plan.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace spillway {
namespace {

/// The least that giving up memory costs, where each part costs so much and parts of parts do their
/// share: the cheapest per byte first.
class CheapestFirst {
 public:
  void add(std::uint64_t bytes, double seconds) {
    if (bytes > 0) parts_.push_back({static_cast<double>(bytes), seconds});
  }

  /// Call it once, when all are in.
  void order() {
    std::sort(parts_.begin(), parts_.end(), [](const Part& left, const Part& right) {
      return left.seconds * right.bytes < right.seconds * left.bytes;
    });
    for (Part& part : parts_) {
      part = {bytes_ += part.bytes, seconds_ += part.seconds};
    }
  }

  [[nodiscard]] double bytes() const { return bytes_; }

  /// Of that many bytes; of all where there are fewer.
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
    double bytes;  // once ordered: of it and all before it
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
        over_(profile.places()),
        rebuildable_(profile.places()),
        turn_(std::min(profile.turn, profile.places())) {
    const std::vector<Action> all(profile.storages.size(), Action::kKeep);
    const auto live = live_bytes(profile, all);
    for (std::size_t place = 0; place < live.size(); ++place)
      over_[place] = static_cast<double>(live[place]) - static_cast<double>(budget.count());
    price();
    count_rebuildable();
    before_.push_back(0);
    for (const double seconds : profile.seconds)
      before_.push_back(before_.back() + seconds);
    find_first_and_last();
  }

  [[nodiscard]] StepBound at(double rebuilt) const {
    const double forward = before_[turn_];
    const double backward = before_.back() - forward;
    const double rebuild = rebuild_.seconds(rebuilt);
    double out = forward;
    double in = backward + rebuild;
    for (std::size_t place = 0; place < profile_.places(); ++place) {
      const double away = over_[place] - std::min(rebuilt, rebuildable_[place]);
      if (away <= 0) continue;
      if (place <= turn_) {
        out = std::max(out, first_ + out_.seconds(away) + forward - before_[place]);
      }
      const double back = in_.seconds(away);
      if (place >= turn_ && back > 0) {
        in = std::max(in, before_[place] - forward + back + before_.back() - last_);
      }
    }
    StepBound bound{out + in, out, in, static_cast<std::uint64_t>(rebuilt)};
    const double stall_out = out - forward;
    const double stall_in = in - backward - rebuild;
    const double most = std::max({stall_out, stall_in, rebuild});
    if (most > 0) {
      bound.limit = most == stall_out  ? StepBound::Limit::kLinkOut
                    : most == stall_in ? StepBound::Limit::kLinkIn
                                       : StepBound::Limit::kRebuild;
    }
    return bound;
  }

  [[nodiscard]] StepBound least() const {
    // Convex: three parts at a time.
    double low = 0;
    double high = rebuild_.bytes();
    while (high - low > 1) {
      const double third = (high - low) / 3;
      if (at(low + third).seconds <= at(high - third).seconds) {
        high -= third;
      } else {
        low += third;
      }
    }
    const StepBound none = at(0);
    const StepBound found = at((low + high) / 2);
    return none.seconds <= found.seconds ? none : found;
  }

 private:
  /// What giving up the memory of each storage costs, as one may.
  void price() {
    std::vector<std::uint64_t> away(profile_.storages.size());
    for (const RecordedStep::Absence& each : profile_.memory.absences)
      away[each.storage] = std::max(away[each.storage], each.bytes);
    for (std::size_t storage = 0; storage < away.size(); ++storage) {
      const StepProfile::Storage& known = profile_.storages[storage];
      // What is never wanted again need not come back.
      const bool wanted = known.wanted < profile_.places();
      out_.add(away[storage], profile_.link.out_seconds(known.bytes));
      in_.add(away[storage], wanted ? profile_.link.in_seconds(known.bytes) : 0);
      if (known.rebuild) rebuild_.add(away[storage], wanted ? *known.rebuild : 0);
    }
    out_.order();
    in_.order();
    rebuild_.order();
  }

  void count_rebuildable() {
    std::vector<double> change(profile_.places() + 1);
    for (const RecordedStep::Absence& away : profile_.memory.absences) {
      if (!profile_.storages[away.storage].rebuild) continue;
      change[away.from] += static_cast<double>(away.bytes);
      change[away.to] -= static_cast<double>(away.bytes);
    }
    double sum = 0;
    for (std::size_t place = 0; place < rebuildable_.size(); ++place)
      rebuildable_[place] = sum += change[place];
  }

  void find_first_and_last() {
    std::size_t first = profile_.places();
    std::size_t last = 0;
    for (const StepProfile::Storage& storage : profile_.storages) {
      first = std::min(first, storage.saved);
      if (storage.wanted < profile_.places()) last = std::max(last, storage.wanted);
    }
    first_ = before_[first];
    last_ = before_[last];
  }

  const StepProfile& profile_;
  CheapestFirst out_;                // O(b) of the header
  CheapestFirst in_;                 // I(b)
  CheapestFirst rebuild_;            // C(r)
  std::vector<double> over_;         // K(k) - budget
  std::vector<double> rebuildable_;  // R(k)
  std::vector<double> before_;       // t(k), and t_end
  std::size_t turn_;
  double first_ = 0;
  double last_ = 0;
};

}  // namespace

StepBound lower_bound(const StepProfile& profile, Bytes budget) {
  SPILLWAY_CHECK(profile.timed());
  return Bound(profile, budget).least();
}

}  // namespace spillway
