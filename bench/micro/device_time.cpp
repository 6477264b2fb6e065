// SPDX-License-Identifier: Apache-2.0
#include "bench/micro/device_time.h"

#include <atomic>

namespace spillway::micro {

Result<std::unique_ptr<DeviceTime>> DeviceTime::make(Probe& probe) {
  SPILLWAY_ASSIGN_OR_RETURN(OwnedStream gate, OwnedStream::make(probe));
  std::unique_ptr<DeviceTime> made(new DeviceTime(probe, std::move(gate)));
  void* flag = nullptr;
  SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL_EXTRA(
      probe, MemHostAlloc, &flag, sizeof *made->flag_, CU_MEMHOSTALLOC_DEVICEMAP));
  made->flag_ = static_cast<unsigned*>(flag);
  SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(probe.api(), EventCreate, &made->go_, CU_EVENT_DEFAULT));
  return made;
}

DeviceTime::~DeviceTime() {
  for (const Events& each : events_) {
    if (each.begin != nullptr) probe_.api().EventDestroy(each.begin);
    if (each.end != nullptr) probe_.api().EventDestroy(each.end);
  }
  if (go_ != nullptr) probe_.api().EventDestroy(go_);
  if (flag_ != nullptr) probe_.extra().MemFreeHost(flag_);
}

Status DeviceTime::add_events(std::size_t count) {
  while (events_.size() < count) {
    Events& made = events_.emplace_back();
    SPILLWAY_RETURN_IF_ERROR(
        SPILLWAY_CALL(probe_.api(), EventCreate, &made.begin, CU_EVENT_DEFAULT));
    SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(probe_.api(), EventCreate, &made.end, CU_EVENT_DEFAULT));
  }
  return {};
}

Status DeviceTime::queue(std::span<const Lane> lanes) {
  const driver::Api& api = probe_.api();
  SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(api, EventRecord, go_, gate_.handle()));
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(api, StreamWaitEvent, lanes[i].stream, go_, 0));
    SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(api, EventRecord, events_[i].begin, lanes[i].stream));
  }
  for (const Lane& lane : lanes)
    SPILLWAY_RETURN_IF_ERROR(lane.submit());
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(api, EventRecord, events_[i].end, lanes[i].stream));
  }
  return {};
}

Result<Seconds> DeviceTime::since_go(CUevent event) {
  float milliseconds = 0;
  SPILLWAY_RETURN_IF_ERROR(
      SPILLWAY_CALL_EXTRA(probe_, EventElapsedTime, &milliseconds, go_, event));
  return Seconds(milliseconds / 1e3);
}

Result<std::vector<Span>> DeviceTime::measure_sync(std::span<const Lane> lanes, Hold hold) {
  SPILLWAY_RETURN_IF_ERROR(add_events(lanes.size()));
  if (hold == Hold::kUntilQueued) {
    std::atomic_ref(*flag_).store(0);
    SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL_EXTRA(probe_,
                                                 StreamWaitValue32,
                                                 gate_.handle(),
                                                 reinterpret_cast<CUdeviceptr>(flag_),
                                                 1,
                                                 CU_STREAM_WAIT_VALUE_EQ));
  }
  const Status queued = queue(lanes);
  std::atomic_ref(*flag_).store(1);  // before any return: a held stream never ends
  SPILLWAY_RETURN_IF_ERROR(queued);
  std::vector<Span> spans(lanes.size());
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    SPILLWAY_RETURN_IF_ERROR(probe_.finish_sync(lanes[i].stream));
    SPILLWAY_ASSIGN_OR_RETURN(spans[i].begin, since_go(events_[i].begin));
    SPILLWAY_ASSIGN_OR_RETURN(spans[i].end, since_go(events_[i].end));
  }
  return spans;
}

}  // namespace spillway::micro
