// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/simulator.h"

#include "allocator/base/check.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

namespace spillway {
namespace {

constexpr auto kNone = std::numeric_limits<std::size_t>::max();

/// Indices of windows by event, in order per event.
class ByEvent {
 public:
  ByEvent(std::size_t events, std::size_t windows) : first_(events + 1, kNone), next_(windows) {}

  /// Call it with the last window first.
  void put(std::size_t event, std::size_t window) {
    next_[window] = first_[event];
    first_[event] = window;
  }

  template <typename Function>
  void each(std::size_t event, Function function) const {
    for (std::size_t window = first_[event]; window != kNone; window = next_[window])
      function(window);
  }

 private:
  std::vector<std::size_t> first_;
  std::vector<std::size_t> next_;
};

/// A window that the plan uses, with its copies.
struct Absence {
  const Window* window;
  std::size_t fetch;              // event at which its copy in is queued
  std::size_t use;                // event that needs it
  std::optional<double> again{};  // seconds of the recomputation, if it is not fetched
  double out_end = 0;             // of its copy out
  double in_end = 0;
  bool released = false;  // its bytes still wait for the copy out
};

/// The windows in which a step with this plan has its candidates away. A first window may extend
/// over later ones, if what used it in between is not recomputed.
std::vector<Absence> absences_of(const StepProfile& profile, const BudgetPlan& plan) {
  std::vector<Absence> absences;
  absences.reserve(plan.actions.size());
  for (std::size_t candidate = 0; candidate < plan.actions.size(); ++candidate) {
    const Candidate& known = profile.candidates[candidate];
    const std::size_t first_use = plan.first_use[candidate];
    if (plan.actions[candidate] == Action::kKeep || known.windows.empty()) continue;
    const bool again = plan.actions[candidate] == Action::kRecompute;
    const double seconds = known.recompute.value_or(0);
    absences.push_back({&known.windows.front(),
                        plan.fetch[candidate],
                        first_use,
                        again ? std::optional(seconds) : std::nullopt});
    for (std::size_t each = 1; !again && each < known.windows.size(); ++each) {
      const Window& window = known.windows[each];
      if (window.to > first_use && (window.in > 0 || window.out > 0))
        absences.push_back({&window, window.to, window.to});
    }
  }
  return absences;
}

class Simulation {
 public:
  Simulation(const StepProfile& profile, const BudgetPlan& plan, Bytes budget)
      : profile_(profile),
        budget_(budget.count()),
        allocated_(allocated_bytes(profile, plan.actions, plan.fetch)),
        absences_(absences_of(profile, plan)),
        ready_(profile.events(), absences_.size()),
        released_(profile.events(), absences_.size()),
        fetched_(profile.events(), absences_.size()),
        used_(profile.events(), absences_.size()) {
    for (std::size_t each = absences_.size(); each-- > 0;) {
      const Absence& absence = absences_[each];
      used_.put(absence.use, each);
      if (absence.again) continue;
      if (absence.window->out > 0) {
        ready_.put(absence.window->ready, each);
        released_.put(absence.window->from, each);
      }
      if (absence.window->in > 0) fetched_.put(absence.fetch, each);
    }
  }

  StepTiming run() {
    leaving_.reserve(absences_.size());
    for (std::size_t event = 0; event < profile_.events(); ++event) {
      ready_.each(event, [&](std::size_t each) {
        if (!is_saved_within(absences_[each])) copy_out(absences_[each]);
      });
      released_.each(event, [&](std::size_t each) { release(absences_[each]); });
      fetched_.each(event, [&](std::size_t each) { copy_in(absences_[each]); });
      wait_for_memory(allocated_[event]);
      used_.each(event, [&](std::size_t each) { use(absences_[each]); });
      ready_.each(event, [&](std::size_t each) {
        if (is_saved_within(absences_[each])) copy_out(absences_[each]);
      });
      now_ += profile_.seconds[event];
      timing_.compute += profile_.seconds[event];
    }
    return timing_;
  }

 private:
  /// Whether its copy out begins within the event, after what the event waits for.
  static bool is_saved_within(const Absence& absence) {
    return absence.window->ready_after > 0 && absence.window->ready < absence.window->from;
  }

  void copy_out(Absence& absence) {
    const double ready = now_ + absence.window->ready_after;
    link_out_ = std::max(link_out_, ready) + profile_.link.out_seconds(absence.window->out);
    absence.out_end = link_out_;
    leaving_.push_back(&absence);
  }

  void release(Absence& absence) {
    if (absence.out_end <= now_) return;
    absence.released = true;
    in_flight_ += absence.window->bytes;
  }

  void copy_in(Absence& absence) {
    link_in_ =
        std::max({link_in_, now_, absence.out_end}) + profile_.link.in_seconds(absence.window->in);
    absence.in_end = link_in_;
  }

  void wait_for_memory(std::uint64_t allocated) {
    for (; left_ < leaving_.size(); ++left_) {
      const Absence& next = *leaving_[left_];
      if (next.out_end > now_) {
        if (allocated + in_flight_ <= budget_) return;
        timing_.stall_out += wait_until(next.out_end);
      }
      if (next.released) in_flight_ -= next.window->bytes;
    }
  }

  void use(const Absence& absence) {
    if (!absence.again) {
      timing_.stall_in += wait_until(absence.in_end);
      return;
    }
    timing_.recompute += *absence.again;
    now_ += *absence.again;
  }

  double wait_until(double when) {
    const double stall = std::max(0.0, when - now_);
    now_ += stall;
    return stall;
  }

  const StepProfile& profile_;
  const std::uint64_t budget_;
  const std::vector<std::uint64_t> allocated_;
  std::vector<Absence> absences_;
  ByEvent ready_;
  ByEvent released_;
  ByEvent fetched_;
  ByEvent used_;
  std::vector<Absence*> leaving_;  // in the order of their copies
  std::size_t left_ = 0;           // index in leaving_
  std::uint64_t in_flight_ = 0;    // released, and not copied yet
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
