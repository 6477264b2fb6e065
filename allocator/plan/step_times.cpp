// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/step_times.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
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

/// What follows a mark: another one, or, none, the end.
using Stretch =
    std::pair<std::pair<std::size_t, bool>, std::optional<std::pair<std::size_t, bool>>>;

template <typename See>
void each_stretch(const StepTimes& times, See see) {
  const auto name = [](const StepTimes::Mark& mark) {
    return std::pair(mark.storage, mark.wanted);
  };
  for (std::size_t i = 0; i < times.marks.size(); ++i) {
    const bool last = i + 1 == times.marks.size();
    const double end = last ? times.end : times.marks[i + 1].seconds;
    Stretch stretch{name(times.marks[i]), std::nullopt};
    if (!last) stretch.second = name(times.marks[i + 1]);
    see(stretch, end - times.marks[i].seconds);
  }
}

}  // namespace

double refine(StepTimes& times, const StepTimes& seen) {
  std::map<Stretch, double> known;
  each_stretch(seen, [&](const Stretch& stretch, double seconds) { known[stretch] = seconds; });
  std::vector<double> stretches;
  each_stretch(times, [&](const Stretch& stretch, double seconds) {
    const auto found = known.find(stretch);
    stretches.push_back(found == known.end() ? seconds : std::min(seconds, found->second));
  });
  // Where storages were wanted in another order nothing is known but all of it.
  const double sum = std::accumulate(stretches.begin(), stretches.end(), 0.0);
  const double share = sum > seen.end ? seen.end / sum : 1;
  const double before = times.end;
  double now = times.marks.empty() ? times.end : times.marks.front().seconds;
  for (std::size_t i = 0; i < times.marks.size(); ++i) {
    times.marks[i].seconds = now;
    now += share * stretches[i];
  }
  times.end = now;
  for (std::size_t i = 0; i < std::min(times.rebuild.size(), seen.rebuild.size()); ++i)
    if (seen.rebuild[i] > 0) times.rebuild[i] = std::min(times.rebuild[i], seen.rebuild[i]);
  return before > 0 ? 1 - now / before : 0;
}

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
