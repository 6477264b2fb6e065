// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/simulator.h"

#include "allocator/base/check.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace spillway {
namespace {

constexpr auto kNone = std::numeric_limits<std::size_t>::max();

/// Storages by the index of an event, in order per event.
class ByEvent {
 public:
  ByEvent(std::size_t events, std::size_t storages) : first_(events + 1, kNone), next_(storages) {}

  /// Call it with the last storage first.
  void put(std::size_t event, std::size_t storage) {
    next_[storage] = first_[event];
    first_[event] = storage;
  }

  template <typename Function>
  void each(std::size_t event, Function function) const {
    for (std::size_t storage = first_[event]; storage != kNone; storage = next_[storage])
      function(storage);
  }

 private:
  std::vector<std::size_t> first_;
  std::vector<std::size_t> next_;
};

class Simulation {
 public:
  Simulation(const StepProfile& profile, const BudgetPlan& plan, Bytes budget)
      : profile_(profile),
        plan_(plan),
        budget_(budget.count()),
        allocated_(allocated_bytes(profile, plan.actions, plan.fetch)),
        saved_(profile.events(), profile.storages.size()),
        released_(profile.events(), profile.storages.size()),
        fetched_(profile.events(), profile.storages.size()),
        first_use_(profile.events(), profile.storages.size()),
        copies_(profile.storages.size()) {
    for (std::size_t storage = profile.storages.size(); storage-- > 0;) {
      if (plan.actions[storage] == Action::kKeep) continue;
      first_use_.put(plan.first_use[storage], storage);
      if (plan.actions[storage] != Action::kOffload) continue;
      saved_.put(profile.storages[storage].saved, storage);
      fetched_.put(plan.fetch[storage], storage);
    }
    for (const RecordedStep::Absence& offloaded : profile.memory.absences) {
      Copies& copies = copies_[offloaded.storage];
      if (plan.actions[offloaded.storage] != Action::kOffload || copies.bytes != 0) continue;
      copies.bytes = offloaded.bytes;  // of its first absence
      released_.put(offloaded.from, offloaded.storage);
    }
  }

  StepTiming run() {
    for (std::size_t event = 0; event < profile_.events(); ++event) {
      saved_.each(event, [&](std::size_t storage) { copy_out(storage); });
      released_.each(event, [&](std::size_t storage) { release(storage); });
      fetched_.each(event, [&](std::size_t storage) { copy_in(storage); });
      wait_for_memory(allocated_[event]);
      first_use_.each(event, [&](std::size_t storage) { use(storage); });
      now_ += profile_.seconds[event];
      timing_.compute += profile_.seconds[event];
    }
    return timing_;
  }

 private:
  struct Copies {
    std::uint64_t bytes = 0;  // released bytes that its copy out still needs
    double out = 0;           // end of that copy
    double in = 0;
    bool released = false;
  };

  void copy_out(std::size_t storage) {
    link_out_ =
        std::max(link_out_, now_) + profile_.link.out_seconds(profile_.storages[storage].bytes);
    copies_[storage].out = link_out_;
    leaving_.push_back(storage);
  }

  void release(std::size_t storage) {
    Copies& copies = copies_[storage];
    if (copies.out <= now_) return;
    copies.released = true;
    in_flight_ += copies.bytes;
  }

  void copy_in(std::size_t storage) {
    link_in_ = std::max({link_in_, now_, copies_[storage].out}) +
               profile_.link.in_seconds(profile_.storages[storage].bytes);
    copies_[storage].in = link_in_;
  }

  void wait_for_memory(std::uint64_t allocated) {
    for (; left_ < leaving_.size(); ++left_) {
      const Copies& next = copies_[leaving_[left_]];
      if (next.out > now_) {
        if (allocated + in_flight_ <= budget_) return;
        timing_.stall_out += wait_until(next.out);
      }
      if (next.released) in_flight_ -= next.bytes;
    }
  }

  void use(std::size_t storage) {
    if (plan_.actions[storage] == Action::kOffload) {
      timing_.stall_in += wait_until(copies_[storage].in);
      return;
    }
    const double seconds = profile_.storages[storage].recompute.value_or(0);
    timing_.recompute += seconds;
    now_ += seconds;
  }

  double wait_until(double when) {
    const double stall = std::max(0.0, when - now_);
    now_ += stall;
    return stall;
  }

  const StepProfile& profile_;
  const BudgetPlan& plan_;
  const std::uint64_t budget_;
  const std::vector<std::uint64_t> allocated_;
  ByEvent saved_;
  ByEvent released_;
  ByEvent fetched_;
  ByEvent first_use_;
  std::vector<Copies> copies_;
  std::vector<std::size_t> leaving_;  // in the order of their copies
  std::size_t left_ = 0;              // index in leaving_
  std::uint64_t in_flight_ = 0;       // released, and not copied yet
  double now_ = 0;
  double link_out_ = 0;  // end of the last copy
  double link_in_ = 0;
  StepTiming timing_;
};

}  // namespace

StepTiming simulate(const StepProfile& profile, const BudgetPlan& plan, Bytes budget) {
  SPILLWAY_CHECK(profile.timed());
  return Simulation(profile, plan, budget).run();
}

}  // namespace spillway
