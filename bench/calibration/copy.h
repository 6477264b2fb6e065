// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/calibration/memory.h"
#include "bench/calibration/stream.h"

namespace spillway::calibration {

constexpr std::string_view name(Way way) {
  return way == Way::kIn ? "host to device" : "device to host";
}

/// Copies `size` bytes between the same offset `at` of both memories. Stream: no wait. Errors:
/// kDriver.
inline Status copy(Probe& probe,
                   Way way,
                   const HostBuffer& host,
                   const DeviceRange& device,
                   Bytes at,
                   Bytes size,
                   CUstream stream) {
  const CUdeviceptr there = device.at() + at.count();
  std::byte* here = host.data() + at.count();
  if (way == Way::kIn)
    return SPILLWAY_CALL(probe.api(), MemcpyHtoDAsync, there, here, size.count(), stream);
  return SPILLWAY_CALL(probe.api(), MemcpyDtoHAsync, here, there, size.count(), stream);
}

}  // namespace spillway::calibration
