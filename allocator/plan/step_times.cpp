// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/step_times.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

/// What computing takes in each place: a stretch between two marks counts where its first one lies.
std::vector<double> seconds_of(const RecordedStep& step, const StepTimes& times) {
  std::vector<double> seconds(step.peaks.size());
  for (std::size_t mark = 0; mark < times.marks.size(); ++mark) {
    const double next = mark + 1 < times.marks.size() ? times.marks[mark + 1].seconds : times.end;
    seconds[step.place_of(times.marks[mark].place)] +=
        std::max(0.0, next - times.marks[mark].seconds);
  }
  return seconds;
}

}  // namespace

StepProfile profile_of(RecordedStep step,
                       const std::vector<Bytes>& sizes,
                       const std::vector<bool>& rebuildable,
                       const StepTimes* times) {
  StepProfile profile(std::move(step));
  const RecordedStep& memory = profile.memory;
  const std::size_t none = profile.places();
  profile.turn = none;
  for (std::size_t storage = 0; storage < sizes.size(); ++storage) {
    StepProfile::Storage& known = profile.storages.emplace_back();
    known.bytes = sizes[storage].count();
    known.saved = known.wanted = none;
    if (rebuildable[storage]) known.rebuild = 0;
  }
  for (std::size_t each = memory.absences.size(); each-- > 0;) {
    const RecordedStep::Absence& away = memory.absences[each];
    StepProfile::Storage& known = profile.storages[away.storage];
    known.saved = away.from;
    known.wanted = away.to;
    profile.turn = std::min(profile.turn, away.to);
  }
  if (times == nullptr) return profile;
  if (none > 0) profile.seconds = seconds_of(memory, *times);
  profile.link = times->link;
  if (times->turn) profile.turn = std::min(profile.turn, memory.place_of(*times->turn));
  for (std::size_t storage = 0; storage < sizes.size(); ++storage) {
    StepProfile::Storage& known = profile.storages[storage];
    if (storage < times->saved.size())
      known.saved = std::min(known.saved, memory.place_of(times->saved[storage]));
    if (known.rebuild && storage < times->rebuild.size()) known.rebuild = times->rebuild[storage];
  }
  return profile;
}

}  // namespace spillway
