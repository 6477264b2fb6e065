// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/plan/planner.h"
#include "allocator/plan/step_profile.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <utility>
#include <vector>

namespace spillway::test_steps {

/// A step that saves `storages` one by one and wants them again in reverse, as training has them;
/// the first half of its events is the forward pass. Sizes, times and rates are random.
inline StepProfile random_step(std::mt19937_64& random, std::size_t storages) {
  const std::size_t events = 2 * storages + 2;
  StepCurve curve;
  for (std::size_t event = 0; event < events; ++event)
    curve.allocated.push_back(1000 + random() % 500);
  std::vector<std::uint64_t> sizes;
  for (std::size_t storage = 0; storage < storages; ++storage) {
    sizes.push_back(50 + random() % 300);
    // Blocks are rounded up.
    curve.absences.push_back(
        {storage, storage + 1, events - 1 - storage, sizes[storage] + random() % 20});
  }
  StepProfile profile{RecordedStep(curve, storages)};
  for (std::size_t event = 0; event < profile.events(); ++event)
    profile.seconds.push_back(static_cast<double>(1 + random() % 100) * 1e-3);
  for (std::size_t storage = 0; storage < storages; ++storage) {
    profile.set_contents(storage, sizes[storage]);
    Candidate& known = profile.candidates[storage];
    Window& window = known.windows.front();
    window.ready = profile.memory.event_of(storage);
    window.ready_after = profile.seconds[window.ready] / static_cast<double>(1 + random() % 4);
    if (random() % 3 == 0) known.recompute = static_cast<double>(random() % 40) * 1e-3;
  }
  profile.link = {static_cast<double>(500 + random() % 20000),
                  static_cast<double>(500 + random() % 20000),
                  static_cast<double>(random() % 3) * 1e-3};
  return profile;
}

/// The same, in which some storages are never used again, as those that a part of a graph has
/// saved which no backward pass goes through.
inline StepProfile random_step_with_unwanted(std::mt19937_64& random, std::size_t storages) {
  StepProfile profile = random_step(random, storages);
  for (Candidate& candidate : profile.candidates) {
    if (random() % 4 != 0) continue;
    candidate.windows.front().to = profile.events();
    candidate.windows.front().in = 0;
  }
  return profile;
}

/// A step as above in which some storages are recomputed, each from one or two that were saved
/// at most `reach` storages before it and that then stay until their own use. Everything is
/// offloaded, as when it is recorded. With `comes_and_goes` some are released before that, some are
/// used once more, and some have no use of their own, as in several backward passes through
/// parts of a graph.
class StepWithOperands {
 public:
  StepWithOperands(std::mt19937_64& random,
                   std::size_t storages,
                   std::size_t reach,
                   bool comes_and_goes)
      : random_(random), sizes_(storages), operands_(storages), left_(storages) {
    curve_.allocated.push_back(kBase);
    for (std::size_t storage = 0; storage < storages; ++storage)
      save(storage, reach);
    for (std::size_t storage = storages; storage-- > 0;) {
      const bool unwanted = comes_and_goes && random() % 6 == 0;
      if (!unwanted) use(storage);
      if (unwanted && !left_[storage]) release(storage);
      for (std::size_t other = 0; comes_and_goes && other < storage; ++other)
        if (!left_[other] && random() % 3 == 0) release(other);
      if (comes_and_goes && random() % 3 == 0) use(random() % storages);
    }
    for (std::size_t storage = 0; storage < storages; ++storage) {
      if (left_[storage] && *left_[storage] < curve_.allocated.size()) {
        curve_.absences.push_back(
            {storage, *left_[storage], curve_.allocated.size(), sizes_[storage]});
      }
    }
  }

  [[nodiscard]] StepProfile profile() {
    StepProfile profile{RecordedStep(curve_, sizes_.size())};
    for (std::size_t event = 0; event < profile.events(); ++event)
      profile.seconds.push_back(static_cast<double>(1 + random_() % 100) * 1e-3);
    for (std::size_t storage = 0; storage < sizes_.size(); ++storage) {
      profile.set_contents(storage, sizes_[storage]);
      if (!operands_[storage].empty())
        profile.candidates[storage].recompute = static_cast<double>(random_() % 40) * 1e-3;
    }
    profile.link = {static_cast<double>(500 + random_() % 20000),
                    static_cast<double>(500 + random_() % 20000),
                    static_cast<double>(random_() % 3) * 1e-3};
    return profile;
  }

 private:
  static constexpr std::uint64_t kBase = 1000;

  void event(std::int64_t change) {
    there_ += change;
    curve_.allocated.push_back(kBase + random_() % 500 + static_cast<std::uint64_t>(there_));
  }

  void save(std::size_t storage, std::size_t reach) {
    sizes_[storage] = 50 + random_() % 300;
    left_[storage] = storage + 1;
    event(0);
    const bool again = storage > 1 && random_() % 2 == 0;
    for (std::uint64_t each = 0; again && each < 1 + random_() % 2; ++each)
      operands_[storage].push_back(storage - 1 - random_() % std::min(storage, reach));
  }

  void use(std::size_t storage) {
    bring(storage, StepCurve::Ask::kNoProduct);
    event(0);
    release(storage);
  }

  void release(std::size_t storage) {
    event(-static_cast<std::int64_t>(sizes_[storage]));
    left_[storage] = curve_.allocated.size() - 1;
  }

  // NOLINTNEXTLINE(misc-no-recursion): operands were saved before
  void bring(std::size_t storage, std::size_t product) {
    if (left_[storage]) {
      for (const std::size_t operand : operands_[storage])
        bring(operand, storage);
      event(static_cast<std::int64_t>(sizes_[storage]));
      curve_.besides.resize(sizes_.size());
      if (!operands_[storage].empty()) curve_.besides[storage] = random_() % 100;
      curve_.absences.push_back({storage,
                                 *std::exchange(left_[storage], std::nullopt),
                                 curve_.allocated.size() - 1,
                                 sizes_[storage]});
    }
    curve_.asks.push_back({storage, curve_.allocated.size() - 1, product});
  }

  std::mt19937_64& random_;
  std::vector<std::uint64_t> sizes_;
  std::vector<std::vector<std::size_t>> operands_;
  std::vector<std::optional<std::size_t>> left_;  // at this event, where it is offloaded
  std::int64_t there_ = 0;
  StepCurve curve_;
};

inline StepProfile random_step_with_operands(std::mt19937_64& random,
                                             std::size_t storages,
                                             std::size_t reach = ~std::size_t{0},
                                             bool comes_and_goes = false) {
  return StepWithOperands(random, storages, reach, comes_and_goes).profile();
}

/// A step of `storages` equal ones: 100 bytes, a second of computing between two of them, and
/// `base` bytes besides.
inline StepProfile even_step(std::size_t storages, std::uint64_t base, LinkRates link) {
  const std::size_t events = 2 * storages + 1;
  StepCurve curve;
  curve.allocated.assign(events, base);
  for (std::size_t storage = 0; storage < storages; ++storage)
    curve.absences.push_back({storage, storage + 1, events - 1 - storage, 100});
  StepProfile profile{RecordedStep(curve, storages)};
  profile.seconds.assign(profile.events(), 1);
  for (std::size_t storage = 0; storage < storages; ++storage)
    profile.candidates[storage].windows.front().ready = storage;
  profile.link = link;
  return profile;
}

inline std::uint64_t peak_of(const StepProfile& step, Action everything) {
  const std::vector<Action> actions(step.candidates.size(), everything);
  const auto allocated = allocated_bytes(step, actions);
  return *std::max_element(allocated.begin(), allocated.end());
}

/// From the least that the step can do with to what it needs with everything kept, in this many
/// parts.
inline std::vector<Bytes> budgets_of(const StepProfile& step, std::uint64_t count) {
  const std::uint64_t most = peak_of(step, Action::kKeep);
  const std::uint64_t least = plan_step(step, Bytes{}).least.count();
  std::vector<Bytes> budgets;
  for (std::uint64_t each = 0; each <= count; ++each)
    budgets.emplace_back(least + (most - least) * each / count);
  return budgets;
}

/// A random action for each candidate; none is recomputed that cannot be.
inline std::vector<Action> random_actions(std::mt19937_64& random, const StepProfile& step) {
  std::vector<Action> actions;
  for (const Candidate& candidate : step.candidates) {
    const auto one = random() % 3;
    actions.push_back(one == 0                           ? Action::kKeep
                      : one == 1 || !candidate.recompute ? Action::kOffload
                                                         : Action::kRecompute);
  }
  return actions;
}

/// The least time of any choice of actions, each fetched when the planner would.
inline double best_of_all(const StepProfile& step, Bytes budget) {
  double best = 1e300;
  std::vector<Action> actions(step.candidates.size(), Action::kKeep);
  const std::function<void(std::size_t)> choose = [&](std::size_t each) {
    if (each == actions.size()) {
      const BudgetPlan plan = plan_with(step, actions, budget);
      if (plan.peak <= budget) best = std::min(best, plan.timing.total());
      return;
    }
    for (const Action action : {Action::kOffload, Action::kRecompute, Action::kKeep}) {
      const Candidate& candidate = step.candidates[each];
      if (action == Action::kRecompute && !candidate.recompute) continue;
      if (action != Action::kKeep && candidate.windows.empty()) continue;
      actions[each] = action;
      choose(each + 1);
    }
  };
  choose(0);
  return best;
}

}  // namespace spillway::test_steps
