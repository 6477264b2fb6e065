// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/planner.h"

#include "allocator/plan/range_peaks.h"
#include "allocator/plan/simulator.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

namespace spillway {
namespace {

/// How often the simulator may be asked. It needs that many steps to find one of so many storages
/// by golden section that nobody misses the rest.
constexpr int kMostTries = 12;

/// A step's peaks while storages are put back one by one.
class Room {
 public:
  explicit Room(const StepProfile& profile)
      : profile_(profile), peaks_(profile.memory.peaks), first_(profile.storages.size() + 1) {
    for (const RecordedStep::Absence& away : profile.memory.absences)
      ++first_[away.storage + 1];
    std::partial_sum(first_.begin(), first_.end(), first_.begin());
  }

  [[nodiscard]] std::uint64_t most() const { return peaks_.most(); }

  /// Keeps the storage where the step then needs at most `limit`.
  bool keep(std::size_t storage, std::uint64_t limit) {
    for (std::size_t each = first_[storage]; each < first_[storage + 1]; ++each) {
      const RecordedStep::Absence& away = profile_.memory.absences[each];
      if (peaks_.most(away.from, away.to) + away.bytes > limit) return false;
    }
    for (std::size_t each = first_[storage]; each < first_[storage + 1]; ++each) {
      const RecordedStep::Absence& away = profile_.memory.absences[each];
      peaks_.add(away.from, away.to, away.bytes);
    }
    return true;
  }

  /// Brings the storage back as early as `limit` allows, at `earliest` or after; that place.
  std::size_t fetch(std::size_t storage, std::size_t earliest, std::uint64_t limit) {
    const std::size_t wanted = profile_.storages[storage].wanted;
    std::size_t place = wanted;
    for (std::size_t each = first_[storage]; each < first_[storage + 1]; ++each) {
      const RecordedStep::Absence& away = profile_.memory.absences[each];
      if (away.to > wanted || away.bytes > limit) continue;
      const std::size_t from = std::max(earliest, away.from + 1);
      if (from >= away.to) continue;
      place = peaks_.free_since(from, away.to, limit - away.bytes);
      peaks_.add(place, away.to, away.bytes);
    }
    return place;
  }

 private:
  const StepProfile& profile_;
  RangePeaks peaks_;
  std::vector<std::size_t> first_;  // absence of each storage
};

class Planner {
 public:
  Planner(const StepProfile& profile, Bytes budget)
      : profile_(profile), budget_(budget.count()), all_away_(profile), least_(all_away_.most()) {
    // Whatever the budget, so that the order of what goes on from here does not depend on it
    // either.
    for (std::size_t storage = profile.storages.size(); storage-- > 0;) {
      if (all_away_.keep(storage, least_)) continue;
      (profile.storages[storage].rebuild ? rebuilt_ : moved_).push_back(storage);
    }
    const auto dearer = [&](std::size_t left, std::size_t right) {
      const auto& one = profile.storages[left];
      const auto& other = profile.storages[right];
      return *one.rebuild * static_cast<double>(other.bytes) >
             *other.rebuild * static_cast<double>(one.bytes);
    };
    std::stable_sort(rebuilt_.begin(), rebuilt_.end(), dearer);
    by_use_.resize(profile.storages.size());
    std::iota(by_use_.begin(), by_use_.end(), std::size_t{0});
    std::stable_sort(by_use_.begin(), by_use_.end(), [&](std::size_t left, std::size_t right) {
      return profile.storages[left].wanted < profile.storages[right].wanted;
    });
  }

  StepPlan best() {
    const std::size_t most = plan_with(moved_.size()).put_back;
    if (!profile_.timed() || rebuilt_.empty()) return plan_with(most).plan;
    // Golden section over how many of what moves are put back first.
    std::size_t low = 0;
    std::size_t high = most;
    const auto seconds = [&](std::size_t first) {
      return tried(first).timing.total();
    };
    for (int tries = 0; tries < kMostTries && high - low > 2; ++tries) {
      const auto width = static_cast<double>(high - low);
      const auto left = low + static_cast<std::size_t>(width * 0.382);
      const auto right = std::max(left + 1, low + static_cast<std::size_t>(width * 0.618));
      if (seconds(left) <= seconds(right)) {
        high = right;
      } else {
        low = left;
      }
    }
    std::size_t best = most;
    for (const auto& [first, plan] : tried_)
      if (plan.timing.total() < seconds(best)) best = first;
    for (std::size_t first = low; first <= high; ++first)
      if (seconds(first) < seconds(best)) best = first;
    return std::move(tried_.at(best));
  }

 private:
  struct Tried {
    StepPlan plan;
    std::size_t put_back;  // of what moves, before the budget allowed no more
  };

  StepPlan& tried(std::size_t first) {
    const auto known = tried_.find(first);
    if (known != tried_.end()) return known->second;
    return tried_.emplace(first, plan_with(first).plan).first->second;
  }

  /// Puts so many of what moves back before what is computed again has its turn, then the others.
  Tried plan_with(std::size_t first) {
    Room room = all_away_;
    Tried tried{{}, 0};
    StepPlan& plan = tried.plan;
    plan.actions.assign(profile_.storages.size(), Action::kKeep);
    for (const std::size_t storage : moved_)
      plan.actions[storage] = Action::kMove;
    for (const std::size_t storage : rebuilt_)
      plan.actions[storage] = Action::kRebuild;
    const auto put_back = [&](std::size_t until) {
      for (; tried.put_back < until; ++tried.put_back) {
        const std::size_t storage = moved_[tried.put_back];
        if (!room.keep(storage, budget_)) return;
        plan.actions[storage] = Action::kKeep;
      }
    };
    put_back(first);
    for (const std::size_t storage : rebuilt_)
      if (room.keep(storage, budget_)) plan.actions[storage] = Action::kKeep;
    put_back(moved_.size());
    schedule(plan, room);
    plan.peak = Bytes{room.most()};
    plan.least = Bytes{least_};
    if (profile_.timed()) plan.timing = simulate(profile_, plan, Bytes{budget_});
    return tried;
  }

  void schedule(StepPlan& plan, Room& room) const {
    plan.fetch.assign(plan.actions.size(), 0);
    std::size_t earliest = profile_.turn;
    for (const std::size_t storage : by_use_) {
      const std::size_t wanted = profile_.storages[storage].wanted;
      plan.fetch[storage] = wanted;
      if (plan.actions[storage] != Action::kMove || wanted >= profile_.places()) continue;
      plan.fetch[storage] =
          std::min(wanted, room.fetch(storage, earliest, std::max(budget_, room.most())));
      earliest = std::max(earliest, plan.fetch[storage]);
    }
  }

  const StepProfile& profile_;
  const std::uint64_t budget_;
  Room all_away_;
  const std::uint64_t least_;
  std::vector<std::size_t> moved_;    // what can only move and helps, the latest first
  std::vector<std::size_t> rebuilt_;  // the dearest first
  std::vector<std::size_t> by_use_;
  std::map<std::size_t, StepPlan> tried_;
};

}  // namespace

StepPlan plan_step(const StepProfile& profile, Bytes budget) {
  return Planner(profile, budget).best();
}

}  // namespace spillway
