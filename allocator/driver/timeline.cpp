// SPDX-License-Identifier: Apache-2.0
#include "allocator/driver/timeline.h"

#include "allocator/base/check.h"
#include "allocator/driver/span_log.h"

#include <algorithm>
#include <atomic>
#include <string>

namespace spillway::driver {
namespace {

/// Above this many outstanding markers, the next one queries them, so that a stream without queries
/// stays bounded.
constexpr std::size_t kOutstandingBeforeQuery = 64;

/// The driver's result for a stream that was destroyed, belongs to another device, or never
/// existed.
bool is_gone(CUresult result) {
  return result == CUDA_ERROR_INVALID_HANDLE || result == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

Status no_stream(DeviceId device) {
  return SPILLWAY_ERROR(Code::kInvalidArgument,
                        "the stream passed is not a stream of device " +
                            std::to_string(static_cast<int>(device)) +
                            ": it was destroyed, belongs to another device, or never was a stream. "
                            "Pass one that exists.");
}

/// Errors: kInvalidArgument if there is no such stream.
Status outside_capture(const Api& api, Stream stream) {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult result = api.StreamIsCapturing(stream.handle(), &capture);
  if (is_gone(result)) return no_stream(stream.device());
  SPILLWAY_RETURN_IF_ERROR(to_status(api, result, "cuStreamIsCapturing", __FILE__, __LINE__));
  if (capture == CU_STREAM_CAPTURE_STATUS_NONE) return {};
  return SPILLWAY_ERROR(
      Code::kNotReady,
      "a stream is being captured into a CUDA graph. Record and wait for work outside of the "
      "graph after the capture ends.");
}

}  // namespace

Timeline::~Timeline() {
  const CurrentDevice current(*device_.api, device_.context);
  for (const Marker& marker : outstanding_)
    device_.api->EventDestroy(marker.event);
  for (CUevent event : spare_)
    device_.api->EventDestroy(event);
  for (CUevent event : waited_for_)
    device_.api->EventDestroy(event);
}

Result<Fence> Timeline::mark() {
  const Lock lock(mutex_);
  const CurrentDevice current(*device_.api, device_.context);
  return record(IfGone::kWaitForDevice);
}

Status Timeline::verify() {
  if (stream_.default_of_its_device()) return {};
  const Lock lock(mutex_);
  const CurrentDevice current(*device_.api, device_.context);
  const Status status =
      verified_ ? outside_capture(*device_.api, stream_) : record(IfGone::kRefuse).status();
  verified_ = verified_ || status.ok();
  // A handle that can be captured is a stream.
  return status.code() == Code::kNotReady ? Status() : status;
}

Fence Timeline::promise() {
  const Lock lock(mutex_);
  return {this, next()};
}

std::uint64_t Timeline::next() {
  static std::atomic<std::uint64_t> made{0};
  if (next_ == 0) next_ = made.fetch_add(1, std::memory_order_relaxed) + 1;
  return next_;
}

Status Timeline::keep_promise(Fence fence, IfGone gone) {
  if (fence.point != next_) return {};
  return record(gone).status();
}

Result<Fence> Timeline::record(IfGone gone) {
  SPILLWAY_ASSIGN_OR_RETURN(const CUevent event, record_event(stream_, gone));
  if (event == nullptr) return Fence{this, passed_};
  const Fence fence{this, next()};
  next_ = 0;
  outstanding_.push_back({fence.point, event});
  if (outstanding_.size() >= kOutstandingBeforeQuery) retire_passed();
  return fence;
}

Result<CUevent> Timeline::record_event(Stream stream, IfGone gone) {
  if (Status status = outside_capture(*device_.api, stream); !status.ok()) {
    const bool lost = status.code() == Code::kInvalidArgument;
    return lost && gone == IfGone::kWaitForDevice ? pass_all_sync() : status;
  }
  CUevent event = nullptr;
  if (spare_.empty()) {
    SPILLWAY_RETURN_IF_ERROR(
        SPILLWAY_CALL(*device_.api, EventCreate, &event, CU_EVENT_DISABLE_TIMING));
  } else {
    event = spare_.back();
    spare_.pop_back();
  }
  const CUresult result = device_.api->EventRecord(event, stream.handle());
  if (result == CUDA_SUCCESS) return event;
  spare_.push_back(event);
  if (!is_gone(result)) {
    return to_status(*device_.api, result, "cuEventRecord", __FILE__, __LINE__);
  }
  return gone == IfGone::kWaitForDevice ? pass_all_sync() : no_stream(device_.id);
}

/// A destroyed stream takes no more work, and its submitted work ends with the device's work.
Result<CUevent> Timeline::pass_all_sync() {
  count_lost_stream();
  count_host_sync();
  const OutsideCaptures outside(*device_.api);
  SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(*device_.api, CtxSynchronize));
  while (!outstanding_.empty())
    retire_oldest();
  passed_ = next();
  next_ = 0;
  return CUevent{nullptr};
}

Status Timeline::wait(Stream waiter, Fence fence) {
  if (!fence.set() || fence.timeline->stream_ == waiter) return {};
  Timeline& self = *fence.timeline;
  const Lock lock(self.mutex_);
  const CurrentDevice current(*self.device_.api, self.device_.context);
  SPILLWAY_RETURN_IF_ERROR(self.keep_promise(fence, IfGone::kWaitForDevice));
  CUevent event = self.event_for(fence.point);
  if (event == nullptr) return {};
  SPILLWAY_RETURN_IF_ERROR(outside_capture(*self.device_.api, waiter));
  const SpanLog::Scope timed(self.device_,
                             waiter,
                             Span::Kind::kWait,
                             Bytes{},
                             reinterpret_cast<std::uint64_t>(self.stream_.handle()));
  return SPILLWAY_CALL(*self.device_.api, StreamWaitEvent, waiter.handle(), event, 0U);
}

Status Timeline::order_before(Stream later) {
  if (stream_ == later) return {};
  const Lock lock(mutex_);
  const CurrentDevice current(*device_.api, device_.context);
  return order(stream_, later);
}

Status Timeline::order(Stream earlier, Stream later) {
  SPILLWAY_ASSIGN_OR_RETURN(const CUevent event, record_event(earlier, IfGone::kWaitForDevice));
  if (event == nullptr) return {};
  // The wait is for the event's present state, even if it is recorded again later.
  spare_.push_back(event);
  return SPILLWAY_CALL(*device_.api, StreamWaitEvent, later.handle(), event, 0U);
}

bool Timeline::passed(Fence fence) {
  if (!fence.set()) return true;
  Timeline& self = *fence.timeline;
  const Lock lock(self.mutex_);
  if (fence.point > self.passed_) {
    const CurrentDevice current(*self.device_.api, self.device_.context);
    const OutsideCaptures outside(*self.device_.api);
    if (!self.keep_promise(fence, IfGone::kRefuse).ok()) return false;
    self.retire_passed();
  }
  return fence.point <= self.passed_;
}

Status Timeline::wait_sync(Fence fence) {
  if (!fence.set()) return {};
  Timeline& self = *fence.timeline;
  const CurrentDevice current(*self.device_.api, self.device_.context);
  CUevent event = nullptr;
  {
    const Lock lock(self.mutex_);
    SPILLWAY_RETURN_IF_ERROR(self.keep_promise(fence, IfGone::kWaitForDevice));
    event = self.event_for(fence.point);
    if (event == nullptr) return {};
    ++self.host_waiters_;
  }
  count_host_sync();
  const OutsideCaptures outside(*self.device_.api);
  Status status = SPILLWAY_CALL(*self.device_.api, EventSynchronize, event);

  const Lock lock(self.mutex_);
  while (status.ok() && self.passed_ < fence.point)
    self.retire_oldest();
  if (--self.host_waiters_ == 0) {
    self.spare_.insert(self.spare_.end(), self.waited_for_.begin(), self.waited_for_.end());
    self.waited_for_.clear();
  }
  return status;
}

void Timeline::retire_passed() {
  while (!outstanding_.empty() &&
         device_.api->EventQuery(outstanding_.front().event) == CUDA_SUCCESS) {
    retire_oldest();
  }
}

void Timeline::retire_oldest() {
  passed_ = outstanding_.front().point;
  // If an event were recorded again while a host thread waits for it, that thread would wait twice.
  (host_waiters_ == 0 ? spare_ : waited_for_).push_back(outstanding_.front().event);
  outstanding_.pop_front();
}

CUevent Timeline::event_for(std::uint64_t point) {
  if (point <= passed_ || outstanding_.empty()) return nullptr;
  const auto marker = std::lower_bound(
      outstanding_.begin(), outstanding_.end(), point, [](const Marker& each, std::uint64_t of) {
        return each.point < of;
      });
  SPILLWAY_CHECK(marker != outstanding_.end());
  return marker->event;
}

}  // namespace spillway::driver
