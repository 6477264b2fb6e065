// SPDX-License-Identifier: Apache-2.0
#include "allocator/abi/spillway.h"

#include "allocator/runtime/runtime.h"

#include <exception>
#include <string>

namespace spillway {
namespace {

std::string& last_error() {
  thread_local std::string text;
  return text;
}

int code_of(Code code) {
  switch (code) {
    case Code::kOk:
      return SPILLWAY_OK;
    case Code::kInvalidArgument:
      return SPILLWAY_INVALID_ARGUMENT;
    case Code::kOutOfDeviceMemory:
      return SPILLWAY_OUT_OF_DEVICE_MEMORY;
    case Code::kOutOfHostMemory:
      return SPILLWAY_OUT_OF_HOST_MEMORY;
    case Code::kDriver:
      return SPILLWAY_DRIVER_ERROR;
    case Code::kNoDriver:
      return SPILLWAY_NO_DRIVER;
    case Code::kNotReady:
      return SPILLWAY_NOT_READY;
  }
  return SPILLWAY_DRIVER_ERROR;
}

/// Runs `body`; a Status or an exception becomes the interface's own code.
template <typename Body>
int at_edge(Body body) noexcept {
  try {
    const Status status = body();
    if (!status.ok()) last_error() = status.message();
    return code_of(status.code());
  } catch (
      const std::exception&) {  // the standard library throws only when the host is out of memory
    return SPILLWAY_OUT_OF_HOST_MEMORY;
  }
}

Status fill(int32_t device, spillway_device_stats* stats) {
  if (stats == nullptr || stats->struct_size != sizeof(spillway_device_stats)) {
    return SPILLWAY_ERROR(
        Code::kInvalidArgument,
        "spillway_device_statistics: stats must point to a structure whose struct_size is " +
            std::to_string(sizeof(spillway_device_stats)));
  }
  SPILLWAY_ASSIGN_OR_RETURN(DeviceRuntime* const runtime,
                            Runtime::instance().device(DeviceId{device}));
  const HeapStats heap = runtime->heap().stats();
  const HostArenaStats host = runtime->arena().stats();
  const ResidencyStats residency = runtime->residency().stats();
  *stats = {sizeof(spillway_device_stats),
            heap.live.count(),
            heap.held.count(),
            heap.held_peak.count(),
            residency.away.count(),
            residency.stashed.count(),
            residency.fetched.count(),
            host.registered.count(),
            host.registered_peak.count(),
            host.in_slots.count()};
  return {};
}

}  // namespace
}  // namespace spillway

uint32_t spillway_abi_version() {
  return SPILLWAY_ABI_VERSION;
}

int spillway_device_statistics(int32_t device, spillway_device_stats* stats) {
  return spillway::at_edge([&] { return spillway::fill(device, stats); });
}

int spillway_step_end() {
  return spillway::at_edge([] {
    spillway::Runtime::instance().end_step();
    return spillway::Status();
  });
}

const char* spillway_last_error() {
  return spillway::last_error().c_str();
}
