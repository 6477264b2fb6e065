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
class ByPlace {
 public:
  ByPlace(std::size_t places, std::size_t storages) : first_(places + 1, kNone), next_(storages) {}

  /// Call it with the last storage first.
  void put(std::size_t place, std::size_t storage) {
    next_[storage] = first_[place];
    first_[place] = storage;
  }

  template <typename Function>
  void each(std::size_t place, Function function) const {
    for (std::size_t storage = first_[place]; storage != kNone; storage = next_[storage])
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
        live_(allocated_bytes(profile, plan.actions, plan.fetch)),
        saved_(profile.places(), profile.storages.size()),
        released_(profile.places(), profile.storages.size()),
        fetched_(profile.places(), profile.storages.size()),
        wanted_(profile.places(), profile.storages.size()),
        moved_(profile.storages.size()) {
    for (std::size_t storage = profile.storages.size(); storage-- > 0;) {
      if (plan.actions[storage] == Action::kKeep) continue;
      wanted_.put(plan.wanted[storage], storage);
      if (plan.actions[storage] != Action::kMove) continue;
      saved_.put(profile.storages[storage].saved, storage);
      fetched_.put(plan.fetch[storage], storage);
    }
    for (const RecordedStep::Absence& offloaded : profile.memory.absences) {
      Moved& moved = moved_[offloaded.storage];
      if (plan.actions[offloaded.storage] != Action::kMove || moved.bytes != 0) continue;
      moved.bytes = offloaded.bytes;  // of its first absence
      released_.put(offloaded.from, offloaded.storage);
    }
  }

  StepTiming run() {
    for (std::size_t place = 0; place < profile_.places(); ++place) {
      saved_.each(place, [&](std::size_t storage) { copy_out(storage); });
      released_.each(place, [&](std::size_t storage) { release(storage); });
      fetched_.each(place, [&](std::size_t storage) { copy_in(storage); });
      wait_for_memory(live_[place]);
      wanted_.each(place, [&](std::size_t storage) { use(storage); });
      now_ += profile_.seconds[place];
      timing_.compute += profile_.seconds[place];
    }
    return timing_;
  }

 private:
  struct Moved {
    std::uint64_t bytes = 0;  // released bytes that its copy out still needs
    double out = 0;           // end of that copy
    double in = 0;
    bool released = false;
  };

  void copy_out(std::size_t storage) {
    link_out_ =
        std::max(link_out_, now_) + profile_.link.out_seconds(profile_.storages[storage].bytes);
    moved_[storage].out = link_out_;
    leaving_.push_back(storage);
  }

  void release(std::size_t storage) {
    Moved& moved = moved_[storage];
    if (moved.out <= now_) return;
    moved.released = true;
    in_flight_ += moved.bytes;
  }

  void copy_in(std::size_t storage) {
    link_in_ = std::max({link_in_, now_, moved_[storage].out}) +
               profile_.link.in_seconds(profile_.storages[storage].bytes);
    moved_[storage].in = link_in_;
  }

  void wait_for_memory(std::uint64_t live) {
    for (; left_ < leaving_.size(); ++left_) {
      const Moved& next = moved_[leaving_[left_]];
      if (next.out > now_) {
        if (live + in_flight_ <= budget_) return;
        timing_.stall_out += wait_until(next.out);
      }
      if (next.released) in_flight_ -= next.bytes;
    }
  }

  void use(std::size_t storage) {
    if (plan_.actions[storage] == Action::kMove) {
      timing_.stall_in += wait_until(moved_[storage].in);
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
  const std::vector<std::uint64_t> live_;
  ByPlace saved_;
  ByPlace released_;
  ByPlace fetched_;
  ByPlace wanted_;
  std::vector<Moved> moved_;
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
