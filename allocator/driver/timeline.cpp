// SPDX-License-Identifier: Apache-2.0
#include "allocator/driver/timeline.h"

#include <algorithm>

namespace spillway::driver {
namespace {

/// Markers above this many are queried when the next one is made, so that a stream nobody asks
/// about stays bounded.
constexpr std::size_t kOutstandingBeforeQuery = 64;

Status outside_capture(const Api& api, Stream stream) {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(api, StreamIsCapturing, stream.handle(), &capture));
  if (capture == CU_STREAM_CAPTURE_STATUS_NONE) return {};
  return SPILLWAY_ERROR(Code::kNotReady,
                        "a stream is being captured into a graph: what is outside the graph can be "
                        "marked and waited for when the capture has ended");
}

}  // namespace

Timeline::~Timeline() {
  const CurrentDevice current(*device_.api, device_.context);
  for (const Marker& marker : outstanding_)
    device_.api->EventDestroy(marker.event);
  for (CUevent event : spare_)
    device_.api->EventDestroy(event);
}

Result<Fence> Timeline::mark() {
  const Lock lock(mutex_);
  const CurrentDevice current(*device_.api, device_.context);
  return record();
}

Fence Timeline::promise() {
  const Lock lock(mutex_);
  return {this, next_};
}

Status Timeline::keep_promise(Fence fence) {
  if (fence.point < next_) return {};
  return record().status();
}

Result<Fence> Timeline::record() {
  SPILLWAY_RETURN_IF_ERROR(outside_capture(*device_.api, stream_));
  if (outstanding_.size() >= kOutstandingBeforeQuery) retire_passed();
  CUevent event = nullptr;
  if (spare_.empty()) {
    SPILLWAY_RETURN_IF_ERROR(
        SPILLWAY_CALL(*device_.api, EventCreate, &event, CU_EVENT_DISABLE_TIMING));
  } else {
    event = spare_.back();
    spare_.pop_back();
  }
  if (Status status = SPILLWAY_CALL(*device_.api, EventRecord, event, stream_.handle());
      !status.ok()) {
    spare_.push_back(event);
    return status;
  }
  outstanding_.push_back({next_, event});
  return Fence{this, next_++};
}

Status Timeline::wait(Stream waiter, Fence fence) {
  if (!fence.set() || fence.timeline->stream_ == waiter) return {};
  Timeline& self = *fence.timeline;
  const Lock lock(self.mutex_);
  const CurrentDevice current(*self.device_.api, self.device_.context);
  SPILLWAY_RETURN_IF_ERROR(self.keep_promise(fence));
  CUevent event = self.event_for(fence.point);
  if (event == nullptr) return {};
  SPILLWAY_RETURN_IF_ERROR(outside_capture(*self.device_.api, waiter));
  return SPILLWAY_CALL(*self.device_.api, StreamWaitEvent, waiter.handle(), event, 0U);
}

bool Timeline::passed(Fence fence) {
  if (!fence.set()) return true;
  Timeline& self = *fence.timeline;
  const Lock lock(self.mutex_);
  if (fence.point > self.passed_) {
    const CurrentDevice current(*self.device_.api, self.device_.context);
    const OutsideCaptures outside(*self.device_.api);
    if (!self.keep_promise(fence).ok()) return false;
    self.retire_passed();
  }
  return fence.point <= self.passed_;
}

Status Timeline::wait_sync(Fence fence) {
  if (!fence.set()) return {};
  Timeline& self = *fence.timeline;
  const Lock lock(self.mutex_);
  const CurrentDevice current(*self.device_.api, self.device_.context);
  SPILLWAY_RETURN_IF_ERROR(self.keep_promise(fence));
  CUevent event = self.event_for(fence.point);
  if (event == nullptr) return {};
  count_host_sync();
  const OutsideCaptures outside(*self.device_.api);
  SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(*self.device_.api, EventSynchronize, event));
  while (self.passed_ < fence.point)
    self.retire_oldest();
  return {};
}

void Timeline::retire_passed() {
  while (!outstanding_.empty() &&
         device_.api->EventQuery(outstanding_.front().event) == CUDA_SUCCESS) {
    retire_oldest();
  }
}

void Timeline::retire_oldest() {
  passed_ = outstanding_.front().point;
  spare_.push_back(outstanding_.front().event);
  outstanding_.pop_front();
}

CUevent Timeline::event_for(std::uint64_t point) {
  if (point <= passed_) return nullptr;
  const auto at = std::find_if(outstanding_.begin(), outstanding_.end(), [&](const Marker& marker) {
    return marker.point >= point;
  });
  return at == outstanding_.end() ? nullptr : at->event;
}

}  // namespace spillway::driver
