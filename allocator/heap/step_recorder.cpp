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

/// Merges the records of a request in two steps: the later one lacks the events of the next step.
StepRequest both(const StepRequest& earlier, StepRequest later, std::uint32_t index) {
  later.fenced = later.fenced || earlier.fenced;
  later.offloadable = later.offloadable && earlier.offloadable;
  if (later.end == BlockEnd::kOwnStep && earlier.end == BlockEnd::kOwnStep) {
    later.died = std::max(later.died, earlier.died);
  } else if (later.end == BlockEnd::kNone && earlier.end == BlockEnd::kNextStep &&
             earlier.died <= index) {
    later.end = BlockEnd::kNextStep;
    later.died = earlier.died;
  } else {
    later.end = BlockEnd::kNone;
  }
  return later;
}

}  // namespace

void StepRecorder::set_enabled(bool on) {
  const Lock lock(mutex_);
  before_.clear();
  now_.clear();
  allocated_.clear();
  left_.clear();
  on_.store(on, std::memory_order_relaxed);
}

void StepRecorder::allocated(
    CUstream stream, driver::DevicePtr at, Bytes requested, Bytes size, TagId tag) {
  const Lock lock(mutex_);
  StepSequence& sequence = now_[stream];
  if (sequence.requests.size() > kMaxRequests) return;
  const auto index = static_cast<std::uint32_t>(sequence.requests.size());
  allocated_[at.address()] = {stream, index};
  StepRequest& request = sequence.requests.emplace_back();
  request.requested = requested;
  request.size = size;
  request.tag = tag;
  sequence.events.push_back({index, false});
}

void StepRecorder::freed(driver::DevicePtr at, bool fenced, bool offloadable) {
  const Lock lock(mutex_);
  const bool here = allocated_.contains(at.address());
  auto& blocks = here ? allocated_ : left_;
  const auto found = blocks.find(at.address());
  if (found == blocks.end()) return;
  const auto [stream, index] = found->second;
  const auto running = now_.find(stream);
  StepRequest& request = (here ? running->second : before_.at(stream)).requests[index];
  request.died =
      running == now_.end() ? 0 : static_cast<std::uint32_t>(running->second.requests.size());
  request.end = here ? BlockEnd::kOwnStep : BlockEnd::kNextStep;
  request.fenced = fenced;
  request.offloadable = offloadable;
  if (here) running->second.events.push_back({index, true});
  blocks.erase(found);
}

std::optional<StepSequence> StepRecorder::end_step() {
  const Lock lock(mutex_);
  if (now_.empty()) return {};
  left_ = std::exchange(allocated_, {});
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
  if (sequence.requests.size() > kMaxRequests) return {};
  for (std::uint32_t i = 0; i < sequence.requests.size(); ++i)
    sequence.requests[i] = both(earlier[i], sequence.requests[i], i);
  return sequence;
}

}  // namespace spillway
