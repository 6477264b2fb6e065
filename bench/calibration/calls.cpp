// SPDX-License-Identifier: Apache-2.0
#include "bench/calibration/copy.h"
#include "bench/calibration/measurements.h"

#include <algorithm>
#include <array>

namespace spillway::calibration {
namespace {

using namespace literals;

/// Nanoseconds of host time per call: the median and the least of several rounds.
Status measure_call(Probe& probe,
                    const char* call,
                    CUstream stream,
                    const std::function<Status()>& once) {
  constexpr int kCalls = 200;
  constexpr int kRounds = 7;
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    Status status;
    const Seconds taken = host_time([&] {
      for (int i = 0; i < kCalls && status.ok(); ++i)
        status = once();
    });
    SPILLWAY_RETURN_IF_ERROR(status);
    SPILLWAY_RETURN_IF_ERROR(probe.finish_sync(stream));
    times.push_back(taken.count() * 1e9 / kCalls);
  }
  Record("call")
      .text("call", call)
      .number("ns", median(times))
      .number("least_ns", *std::min_element(times.begin(), times.end()))
      .print();
  return {};
}

/// Microseconds from a kernel on one stream to a kernel on another that waits for it.
Status measure_hop(Probe& probe, CUstream one, CUstream other, CUevent event) {
  constexpr int kHops = 50;  // few enough for a held stream's queue
  auto taken = probe.stream_time_sync(one, [&] {
    Status status;
    for (int i = 0; i < kHops && status.ok(); ++i) {
      for (const auto& [from, to] : {std::pair(one, other), std::pair(other, one)}) {
        SPILLWAY_RETURN_IF_ERROR(probe.launch("empty", from, {.x = 1}, 1, {}));
        SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(probe.api(), EventRecord, event, from));
        SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(probe.api(), StreamWaitEvent, to, event, 0));
      }
    }
    return status;
  });
  if (!taken.ok()) return taken.status();
  Record("hop").number("us", taken.value().count() * 1e6 / (2 * kHops)).print();
  return {};
}

Status measure_pool(Probe& probe, CUstream stream) {
  return measure_call(probe, "cuMemAllocAsync and cuMemFreeAsync, 64 MiB", stream, [&] {
    CUdeviceptr at = 0;
    SPILLWAY_RETURN_IF_ERROR(
        SPILLWAY_CALL_EXTRA(probe, MemAllocAsync, &at, (64_MiB).count(), stream));
    return SPILLWAY_CALL_EXTRA(probe, MemFreeAsync, at, stream);
  });
}

}  // namespace

Status measure_calls(Probe& probe, const HostBuffer& host, const DeviceRange& device) {
  SPILLWAY_ASSIGN_OR_RETURN(const OwnedStream stream, OwnedStream::make(probe));
  SPILLWAY_ASSIGN_OR_RETURN(const OwnedStream other, OwnedStream::make(probe));
  const driver::Api& api = probe.api();
  CUevent event = nullptr;  // never destroyed: the process ends with the measurements
  SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(api, EventCreate, &event, CU_EVENT_DISABLE_TIMING));
  const CUstream on = stream.handle();
  SPILLWAY_RETURN_IF_ERROR(measure_call(
      probe, "cuEventRecord", on, [&] { return SPILLWAY_CALL(api, EventRecord, event, on); }));
  SPILLWAY_RETURN_IF_ERROR(measure_call(probe, "cuStreamWaitEvent", other.handle(), [&] {
    return SPILLWAY_CALL(api, StreamWaitEvent, other.handle(), event, 0);
  }));
  SPILLWAY_RETURN_IF_ERROR(probe.finish_sync(on));
  SPILLWAY_RETURN_IF_ERROR(measure_call(
      probe, "cuEventQuery", on, [&] { return SPILLWAY_CALL(api, EventQuery, event); }));
  for (const Way way : {Way::kIn, Way::kOut}) {
    const std::string call = "copy of 64 KiB, " + std::string(name(way));
    SPILLWAY_RETURN_IF_ERROR(measure_call(probe, call.c_str(), on, [&] {
      return copy(probe, way, host, device, Bytes{}, 64_KiB, on);
    }));
  }
  if (!probe.has_kernels()) return {};
  SPILLWAY_RETURN_IF_ERROR(measure_call(
      probe, "cuLaunchKernel", on, [&] { return probe.launch("empty", on, {.x = 1}, 1, {}); }));
  SPILLWAY_RETURN_IF_ERROR(measure_pool(probe, on));
  return measure_hop(probe, on, other.handle(), event);
}

Status measure_mapping(Probe& probe) {
  for (const Bytes chunk : {2_MiB, 16_MiB, 64_MiB, 256_MiB, 1_GiB}) {
    const std::size_t count = std::min<std::size_t>(64, (2_GiB).count() / chunk.count());
    if (Bytes{chunk.count() * count} > probe.free_memory() || !probe.enough_time(Seconds(4)))
      return {};
    SPILLWAY_ASSIGN_OR_RETURN(DeviceRange range, DeviceRange::make(probe, chunk, count));
    const double each = 1e6 / static_cast<double>(count);
    Record record("mapping");
    record.bytes("chunk", chunk).number("chunks", static_cast<double>(count));
    record.number("reserve_us", range.cost().reserve.count() * 1e6);
    record.number("create_us", range.cost().create.count() * each);
    record.number("map_us", range.cost().map.count() * each);
    record.number("access_of_the_range_us", range.cost().access.count() * 1e6);
    record.number("unmap_us", range.unmap().count() * each);
    record.number("release_us", range.release().count() * each);
    record.print();
  }
  return {};
}

Status measure_pinning(Probe& probe) {
  for (const Pinning pinning : {Pinning::kHugePages, Pinning::kDriver}) {
    for (const Bytes size : {4_GiB, 16_GiB}) {
      if (!probe.enough_time(Seconds(45))) return {};
      SPILLWAY_ASSIGN_OR_RETURN(const HostBuffer buffer, HostBuffer::make(probe, pinning, size));
      const double gigabytes = static_cast<double>(size.count()) / 1e9;
      Record record("pinning");
      record.text("pinning", name(pinning)).bytes("bytes", size);
      if (pinning != Pinning::kDriver)
        record.number("touch_GB_per_s", gigabytes / buffer.cost().fault.count());
      record.number("pin_GB_per_s", gigabytes / buffer.cost().pin.count()).print();
    }
  }
  return {};
}

}  // namespace spillway::calibration
