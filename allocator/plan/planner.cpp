// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/planner.h"

#include "allocator/plan/exchange.h"
#include "allocator/plan/golden_section.h"
#include "allocator/plan/peak_profile.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

namespace spillway {
namespace {

/// Maximum number of simulations beyond the first two. Golden section with that many ends within a
/// twentieth of the range, and plans of neighbors hardly differ. With more candidates and operands
/// than this, fewer, by the square.
constexpr int kMaxTries = 6;
constexpr double kManyStorages = 5000;

std::uint64_t least_of(const StepProfile& profile, const PeakProfile& all_offloaded) {
  if (!profile.free_at_once || profile.memory.operands.empty()) return all_offloaded.most();
  PeakProfile none_for_others = all_offloaded;
  for (std::size_t candidate = 0; candidate < profile.candidates.size(); ++candidate)
    none_for_others.offload(candidate);
  return none_for_others.most();
}

/// By candidate: the bytes that it copies, per byte that its windows free and per event. It does
/// not depend on measured times, so plans stay the same while these vary.
std::vector<double> copy_costs(const StepProfile& profile) {
  std::vector<double> costs;
  costs.reserve(profile.candidates.size());
  for (const Candidate& candidate : profile.candidates) {
    double copied = 0;
    double freed = 0;
    for (const Window& window : candidate.windows) {
      copied += static_cast<double>(window.out + window.in);
      freed += static_cast<double>(window.bytes) * static_cast<double>(window.to - window.from);
    }
    costs.push_back(copied > 0 ? copied / freed : 0);  // infinite if it frees nothing
  }
  return costs;
}

/// Whether it is only copied in.
bool is_clean(const Candidate& candidate) {
  return !candidate.windows.empty() && candidate.windows.front().out == 0 &&
         candidate.windows.front().in > 0;
}

class Planner {
 public:
  Planner(const StepProfile& profile, Bytes budget)
      : profile_(profile),
        budget_(budget.count()),
        nothing_decided_(profile),
        all_offloaded_(nothing_decided_),
        tried_room_(nothing_decided_),
        least_(least_of(profile, nothing_decided_)),
        cost_(copy_costs(profile)),
        uses_(nothing_decided_.first_use(), profile.events()),
        end_of_saving_(profile.end_of_saving()) {
    const std::vector<std::size_t> offloaded_instead = evict_for();
    // Candidates that the least peak has room for are kept whatever the budget, if that has room
    // for operands. The order of the remaining ones thus does not depend on the budget.
    const std::uint64_t most = all_offloaded_.most();
    std::vector<std::size_t> recomputable;
    for (std::size_t candidate = profile.candidates.size(); candidate-- > 0;) {
      const bool instead =
          std::binary_search(offloaded_instead.begin(), offloaded_instead.end(), candidate);
      if (profile.candidates[candidate].recompute && !instead) {
        recomputable.push_back(candidate);
      } else if (!all_offloaded_.keep(candidate, most)) {
        offloaded_.push_back(candidate);
      }
    }
    order_offloaded();
    const auto is_more_expensive = [&](std::size_t left, std::size_t right) {
      const auto& one = profile.candidates[left];
      const auto& other = profile.candidates[right];
      return *one.recompute * static_cast<double>(other.bytes) >
             *other.recompute * static_cast<double>(one.bytes);
    };
    std::stable_sort(recomputable.begin(), recomputable.end(), is_more_expensive);
    for (const std::size_t candidate : recomputable)
      if (!all_offloaded_.keep(candidate, most)) recomputed_.push_back(candidate);
  }

  BudgetPlan best() {
    const std::vector<std::size_t> offloaded = offloaded_;
    const std::vector<std::size_t> recomputed = recomputed_;
    const auto all =
        static_cast<double>(profile_.candidates.size() + profile_.memory.operands.size());
    const double share = std::min(1.0, kManyStorages / all);
    const auto tries = static_cast<int>(kMaxTries * share * share);
    if (!offload_expensive()) return best_of_first(tries);
    BudgetPlan other = best_of_first(tries / 3);
    if (tries < kMaxTries / 3) return other;
    offloaded_ = offloaded;
    recomputed_ = recomputed;
    tried_.clear();
    BudgetPlan best = best_of_first(tries / 6);
    exchange_expensive(profile_, uses_, nothing_decided_, best);
    exchange_expensive(profile_, uses_, nothing_decided_, other);
    return other.timing.total() < best.timing.total() ? std::move(other) : std::move(best);
  }

 private:
  /// Offloads the earliest expensive candidates too, as many as the link can copy in the forward
  /// pass in addition to those that can only be offloaded. Beside model state that streams, no more
  /// than it can copy back in the rest of the step. False if there are none.
  bool offload_expensive() {
    if (!profile_.timed() || !profile_.free_at_once) return false;
    std::vector<std::size_t> expensive;
    for (const std::size_t candidate : recomputed_)
      if (is_expensive(profile_, candidate)) expensive.push_back(candidate);
    std::sort(expensive.begin(), expensive.end());
    const double saving = profile_.seconds_of_saving();
    double left_out = saving;
    double left_in = seconds_after_saving(saving);
    bool streams = false;
    for (const std::size_t candidate : offloaded_) {
      left_out -= profile_.out_seconds(candidate);
      left_in -= seconds_in_after(candidate);
      streams = streams || is_clean(profile_.candidates[candidate]);
    }
    std::size_t fit = 0;
    for (; fit < expensive.size(); ++fit) {
      left_out -= profile_.out_seconds(expensive[fit]);
      left_in -= seconds_in_after(expensive[fit]) +
                 profile_.candidates[expensive[fit]].recompute.value_or(0);
      if (left_out < 0 || (streams && left_in < 0)) break;
    }
    expensive.resize(fit);
    fit_in(expensive);
    if (expensive.empty()) return false;
    std::erase_if(recomputed_, [&](std::size_t candidate) {
      return std::binary_search(expensive.begin(), expensive.end(), candidate);
    });
    offloaded_.insert(offloaded_.end(), expensive.begin(), expensive.end());
    order_offloaded();
    tried_.clear();
    return true;
  }

  /// Seconds of compute after the copies out, with everything recomputed that can be.
  [[nodiscard]] double seconds_after_saving(double saving) const {
    double seconds =
        std::max(0.0, std::accumulate(profile_.seconds.begin(), profile_.seconds.end(), -saving));
    for (const std::size_t candidate : recomputed_)
      seconds += profile_.candidates[candidate].recompute.value_or(0);
    return seconds;
  }

  /// Seconds of the candidate's copies in after the last copy out has become possible.
  [[nodiscard]] double seconds_in_after(std::size_t candidate) const {
    double seconds = 0;
    for (const Window& window : profile_.candidates[candidate].windows) {
      if (window.in > 0 && window.to > end_of_saving_)
        seconds += profile_.link.in_seconds(window.in);
    }
    return seconds;
  }

  void order_offloaded() {
    std::sort(offloaded_.begin(), offloaded_.end(), [&](std::size_t left, std::size_t right) {
      return cost_[left] != cost_[right] ? cost_[left] > cost_[right] : left > right;
    });
  }

  /// Removes candidates that must not be offloaded: others would be recomputed later, and might
  /// then exceed the budget.
  void fit_in(std::vector<std::size_t>& expensive) {
    PeakProfile room = all_offloaded_;
    const std::uint64_t most = std::max(budget_, room.most());
    std::erase_if(expensive, [&](std::size_t candidate) {
      room.offload(candidate);
      if (room.most() <= most) return false;
      room.compute(candidate);
      return true;
    });
  }

  BudgetPlan best_of_first(int most_tries) {
    Tried all = plan_with(offloaded_.size());
    if (!profile_.timed() || recomputed_.empty()) return std::move(all.plan);
    const std::size_t most = all.first;
    tried_.emplace(most, std::move(all.plan));
    // By the number of offloaded candidates that are put back first.
    const auto seconds = [&](std::size_t first) {
      return tried(first).timing.total();
    };
    golden_section(most, most_tries, seconds);
    std::size_t best = most;
    seconds(0);
    for (const auto& [first, plan] : tried_)
      if (plan.timing.total() < seconds(best)) best = first;
    return std::move(tried_.at(best));
  }

  struct Tried {
    BudgetPlan plan;
    std::size_t first;  // number of offloaded candidates put back before the recomputed ones
  };

  /// If the budget is too small even with everything offloaded or recomputed: candidates to offload
  /// instead of recomputing, because recomputation needs operands on the device. In order.
  std::vector<std::size_t> evict_for() {
    std::vector<std::size_t> offloaded;
    const std::uint64_t limit = std::max(budget_, least_);
    for (std::size_t end = 0; (end = all_offloaded_.end_above(limit)) > 0;) {
      const std::size_t before = offloaded.size();
      for (const std::size_t product : products_at(end - 1)) {
        if (all_offloaded_.end_above(limit) < end) break;
        all_offloaded_.offload(product);
        offloaded.push_back(product);
      }
      if (offloaded.size() == before) break;
    }
    std::sort(offloaded.begin(), offloaded.end());
    return offloaded;
  }

  /// The products with operands present at that event, first those with the most operand bytes per
  /// offloaded byte.
  [[nodiscard]] std::vector<std::size_t> products_at(std::size_t event) const {
    std::vector<std::pair<double, std::size_t>> found;
    for (std::size_t candidate = 0; candidate < profile_.candidates.size(); ++candidate) {
      const std::uint64_t bytes = all_offloaded_.operand_bytes_for(candidate, event);
      const std::uint64_t copied = std::max<std::uint64_t>(profile_.candidates[candidate].bytes, 1);
      if (bytes > 0)
        found.emplace_back(-static_cast<double>(bytes) / static_cast<double>(copied), candidate);
    }
    std::sort(found.begin(), found.end());
    std::vector<std::size_t> products;
    products.reserve(found.size());
    for (const auto& [share, candidate] : found)
      products.push_back(candidate);
    return products;
  }

  BudgetPlan& tried(std::size_t first) {
    const auto known = tried_.find(first);
    if (known != tried_.end()) return known->second;
    return tried_.emplace(first, plan_with(first).plan).first->second;
  }

  /// Puts back `first` offloaded candidates, then the recomputed ones, then the other offloaded
  /// ones.
  Tried plan_with(std::size_t first) {
    PeakProfile& room = tried_room_;
    room = all_offloaded_;
    for (const std::size_t candidate : offloaded_)
      room.offload(candidate);
    Tried tried{{}, 0};
    std::size_t next = 0;  // among the offloaded ones
    BudgetPlan& plan = tried.plan;
    plan.actions.assign(profile_.candidates.size(), Action::kKeep);
    for (const std::size_t candidate : offloaded_)
      plan.actions[candidate] = Action::kOffload;
    for (const std::size_t candidate : recomputed_)
      plan.actions[candidate] = Action::kRecompute;
    const auto put_back = [&](std::size_t until) {
      for (; next < until; ++next) {
        const std::size_t candidate = offloaded_[next];
        if (!room.keep(candidate, budget_)) return;
        plan.actions[candidate] = Action::kKeep;
      }
    };
    put_back(first);
    tried.first = next;
    for (const std::size_t candidate : recomputed_)
      if (room.keep(candidate, budget_)) plan.actions[candidate] = Action::kKeep;
    put_back(offloaded_.size());
    plan.least = Bytes{least_};
    complete(profile_, uses_, room, Bytes{budget_}, plan);
    return tried;
  }

  const StepProfile& profile_;
  const std::uint64_t budget_;
  const PeakProfile nothing_decided_;
  PeakProfile all_offloaded_;
  PeakProfile tried_room_;  // reused by each try
  const std::uint64_t least_;
  const std::vector<double> cost_;  // of copies, by candidate
  // can only be offloaded and lowers a peak, the one with the highest cost first
  std::vector<std::size_t> offloaded_;
  std::vector<std::size_t> recomputed_;  // the most expensive first
  const Uses uses_;
  const std::size_t end_of_saving_;  // event
  std::map<std::size_t, BudgetPlan> tried_;
};

/// Resolution of the search for a budget, as parts of the possible savings.
constexpr std::uint64_t kParts = 1024;

}  // namespace

Bytes least_peak(const StepProfile& profile) {
  return Bytes{least_of(profile, PeakProfile(profile))};
}

BudgetPlan plan_step(const StepProfile& profile, Bytes budget) {
  return Planner(profile, budget).best();
}

BudgetPlan plan_with(const StepProfile& profile, std::vector<Action> actions, Bytes budget) {
  BudgetPlan plan;
  plan.least = least_peak(profile);
  plan.actions = std::move(actions);
  PeakProfile room(profile, plan.actions);
  complete(profile, Uses(room.first_use(), profile.events()), room, budget, plan);
  return plan;
}

BudgetPlan plan_within(const StepProfile& profile, double slowdown, Bytes most) {
  BudgetPlan found = plan_step(profile, most);
  const double limit = slowdown * found.timing.compute;
  const std::uint64_t least = found.least.count();
  const std::uint64_t all = found.peak.count() - std::min(found.peak.count(), least);
  std::uint64_t low = 0;
  for (std::uint64_t high = kParts; found.timing.total() <= limit && low < high;) {
    const std::uint64_t middle = (low + high) / 2;
    BudgetPlan plan = plan_step(profile, Bytes{least + all / kParts * middle});
    if (plan.timing.total() > limit) {
      low = middle + 1;
    } else {
      high = middle;
      found = std::move(plan);
    }
  }
  return found;
}

}  // namespace spillway
