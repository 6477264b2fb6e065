// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/step_profile.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace spillway {

StepProfile::StepProfile(RecordedStep recorded) : memory(std::move(recorded)) {
  candidates.resize(memory.storages);
  for (const RecordedStep::Absence& absence : std::exchange(memory.absences, {})) {
    Candidate& candidate = candidates[absence.storage];
    candidate.windows.push_back(
        {absence.from, absence.to, absence.bytes, absence.from, /*out=*/0, /*in=*/0});
  }
  for (std::size_t candidate = 0; candidate < candidates.size(); ++candidate) {
    const auto& windows = candidates[candidate].windows;
    if (!windows.empty()) set_contents(candidate, windows.front().bytes);
  }
}

void StepProfile::set_contents(std::size_t candidate, std::uint64_t bytes) {
  Candidate& known = candidates[candidate];
  known.bytes = bytes;
  if (known.windows.empty()) return;
  Window& first = known.windows.front();
  first.out = bytes;
  first.in = first.to < events() ? bytes : 0;
}

double StepProfile::out_seconds(std::size_t candidate, std::size_t until) const {
  double sum = 0;
  for (const Window& window : candidates[candidate].windows)
    if (window.from <= until && window.out > 0) sum += link.out_seconds(window.out);
  return sum;
}

std::size_t StepProfile::end_of_saving() const {
  std::size_t end = 0;
  for (std::size_t each = 0; each < std::min(others, candidates.size()); ++each) {
    for (const Window& window : candidates[each].windows)
      if (window.out > 0) end = std::max(end, window.ready + 1);
  }
  return std::min(end, events());
}

double StepProfile::seconds_of_saving() const {
  const std::size_t end = std::min(end_of_saving(), seconds.size());
  return std::accumulate(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(end), 0.0);
}

}  // namespace spillway
