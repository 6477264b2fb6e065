// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/step_times.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <utility>

namespace spillway {
namespace {

/// Compute time of each event: an interval between two marks counts for the event of the first one.
std::vector<double> seconds_of(const RecordedStep& step, const StepTimes& times) {
  std::vector<double> seconds(step.peaks.size());
  for (std::size_t mark = 0; mark < times.marks.size(); ++mark) {
    const double next = mark + 1 < times.marks.size() ? times.marks[mark + 1].seconds : times.end;
    seconds[step.event_of(times.marks[mark].event)] +=
        std::max(0.0, next - times.marks[mark].seconds);
  }
  return seconds;
}

/// The contents of a storage are final when it is saved first, if not when it is released.
void set_ready(const StepTimes& times, StepProfile& profile) {
  std::vector<double> begins(profile.seconds.size());
  std::exclusive_scan(profile.seconds.begin(), profile.seconds.end(), begins.begin(), 0.0);
  for (std::size_t left = times.marks.size(); left-- > 0;) {
    const StepTimes::Mark& mark = times.marks[left];
    if (mark.used || mark.storage >= profile.candidates.size()) continue;
    auto& windows = profile.candidates[mark.storage].windows;
    const std::size_t event = profile.memory.event_of(mark.event);
    if (windows.empty() || event >= windows.front().from) continue;
    windows.front().ready = event;
    windows.front().ready_after = std::max(0.0, mark.seconds - begins[event]);
  }
}

/// The position of a recorded mark in a later step.
struct Anchor {
  std::size_t mark;
  double seconds;
};

/// The longest increasing subsequence of the anchors, in the order of their marks.
std::vector<Anchor> in_order(const std::vector<Anchor>& anchors) {
  std::vector<std::size_t> last;    // for each length, the sequence with the earliest end
  std::vector<std::size_t> before;  // predecessor of each anchor in its sequence
  for (std::size_t i = 0; i < anchors.size(); ++i) {
    const auto longer =
        std::upper_bound(last.begin(), last.end(), anchors[i].seconds, [&](double at, auto other) {
          return at < anchors[other].seconds;
        });
    before.push_back(longer == last.begin() ? i : *std::prev(longer));
    if (longer == last.end()) {
      last.push_back(i);
    } else {
      *longer = i;
    }
  }
  std::vector<Anchor> row;
  for (std::size_t left = last.size(), i = last.empty() ? 0 : last.back(); left > 0; --left) {
    row.push_back(anchors[i]);
    i = before[i];
  }
  std::reverse(row.begin(), row.end());
  return row;
}

/// The times of the marks of `recorded` in `seen`, followed by the end.
std::vector<double> times_in(const StepTimes& recorded, const StepTimes& seen) {
  const auto name = [](const StepTimes::Mark& mark) {
    return std::pair(mark.storage, mark.used);
  };
  std::map<std::pair<std::size_t, bool>, double> at;
  for (const StepTimes::Mark& mark : seen.marks)
    at.try_emplace(name(mark), mark.seconds);
  const std::size_t end = recorded.marks.size();
  std::vector<Anchor> anchors;
  for (std::size_t mark = 0; mark < end; ++mark) {
    const auto found = at.find(name(recorded.marks[mark]));
    if (found == at.end()) continue;
    anchors.push_back({mark, found->second});
    at.erase(found);
  }
  anchors = in_order(anchors);
  anchors.push_back({end, seen.end});

  const auto before = [&](std::size_t mark) {
    return mark == end ? recorded.end : recorded.marks[mark].seconds;
  };
  std::vector<double> aligned;
  Anchor left{0, 0};
  for (const Anchor& right : anchors) {
    const double length = before(right.mark) - before(left.mark);
    const double share = length > 0 ? (right.seconds - left.seconds) / length : 0;
    while (aligned.size() < right.mark) {
      const double time = left.seconds + share * (before(aligned.size()) - before(left.mark));
      aligned.push_back(std::min(right.seconds, time));  // rounding up would move it past the mark
    }
    left = right;
  }
  aligned.push_back(seen.end);
  return aligned;
}

}  // namespace

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

StepTimes typical(const StepTimes& recorded, const std::vector<StepTimes>& seen) {
  std::vector<std::vector<double>> aligned;
  aligned.reserve(seen.size());
  for (const StepTimes& each : seen)
    aligned.push_back(times_in(recorded, each));
  const auto at = [&](std::size_t mark) {
    std::vector<double> seconds;
    seconds.reserve(aligned.size());
    for (const std::vector<double>& each : aligned)
      seconds.push_back(each[mark]);
    return median(std::move(seconds));
  };
  StepTimes times = recorded;
  for (std::size_t mark = 0; mark < times.marks.size(); ++mark)
    times.marks[mark].seconds = at(mark);
  times.end = at(times.marks.size());
  for (std::size_t storage = 0; storage < times.recompute.size(); ++storage) {
    std::vector<double> seconds;
    for (const StepTimes& each : seen) {
      if (storage < each.recompute.size() && each.recompute[storage] > 0) {
        seconds.push_back(each.recompute[storage]);
      }
    }
    if (!seconds.empty()) times.recompute[storage] = median(std::move(seconds));
  }
  return times;
}

StepProfile profile_of(RecordedStep step,
                       const std::vector<Bytes>& sizes,
                       const std::vector<bool>& recomputable,
                       const StepTimes* times) {
  StepProfile profile(std::move(step));
  for (std::size_t storage = 0; storage < sizes.size(); ++storage) {
    profile.set_contents(storage, sizes[storage].count());
    if (recomputable[storage]) profile.candidates[storage].recompute = 0;
  }
  if (times == nullptr) return profile;
  if (profile.events() > 0) profile.seconds = seconds_of(profile.memory, *times);
  profile.link = times->link;
  set_ready(*times, profile);
  for (std::size_t storage = 0; storage < sizes.size(); ++storage) {
    Candidate& known = profile.candidates[storage];
    if (known.recompute && storage < times->recompute.size())
      known.recompute = times->recompute[storage];
  }
  return profile;
}

}  // namespace spillway
