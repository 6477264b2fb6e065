// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/step_recorder.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

Bytes sum(const StepSequence& sequence) {
  Bytes bytes;
  for (const StepRequest& request : sequence.requests)
    bytes += request.size;
  return bytes;
}

bool same_requests(const std::vector<StepRequest>& left, const std::vector<StepRequest>& right) {
  return std::equal(left.begin(),
                    left.end(),
                    right.begin(),
                    right.end(),
                    [](const StepRequest& one, const StepRequest& other) {
                      return one.requested == other.requested;
                    });
}

}  // namespace

void StepRecorder::turn(bool on) {
  const Lock lock(mutex_);
  before_.clear();
  now_.clear();
  live_.clear();
  on_.store(on, std::memory_order_relaxed);
}

void StepRecorder::allocated(
    CUstream stream, driver::DevicePtr at, Bytes requested, Bytes size, TagId tag) {
  const Lock lock(mutex_);
  StepSequence& sequence = now_[stream];
  if (sequence.requests.size() > kMostRequests) return;
  const auto index = static_cast<std::uint32_t>(sequence.requests.size());
  live_[at.address()] = {stream, index};
  sequence.requests.push_back({requested, size, 0, false, tag});
  sequence.events.push_back({index, false});
}

void StepRecorder::freed(driver::DevicePtr at, bool shared) {
  const Lock lock(mutex_);
  const auto found = live_.find(at.address());
  if (found == live_.end()) return;
  StepSequence& sequence = now_[found->second.stream];
  StepRequest& request = sequence.requests[found->second.index];
  request.died = static_cast<std::uint32_t>(sequence.requests.size());
  request.placed = !shared;
  sequence.events.push_back({found->second.index, true});
  live_.erase(found);
}

std::optional<StepSequence> StepRecorder::end_step() {
  const Lock lock(mutex_);
  if (now_.empty()) return {};
  live_.clear();
  const Sequences before = std::exchange(before_, std::exchange(now_, {}));
  const auto most =
      std::max_element(before_.begin(), before_.end(), [](const auto& left, const auto& right) {
        return sum(left.second) < sum(right.second);
      });
  const auto known = before.find(most->first);
  if (known == before.end()) return {};
  const std::vector<StepRequest>& earlier = known->second.requests;
  StepSequence sequence = most->second;
  sequence.stream = most->first;
  if (!same_requests(earlier, sequence.requests)) return {};
  if (sequence.requests.size() > kMostRequests) return {};
  for (std::size_t i = 0; i < sequence.requests.size(); ++i) {
    StepRequest& request = sequence.requests[i];
    request.died = std::max(request.died, earlier[i].died);
    request.placed = request.placed && earlier[i].placed;
  }
  return sequence;
}

}  // namespace spillway
