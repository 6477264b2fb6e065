// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/calibration/memory.h"

#include <utility>

namespace spillway::calibration {

/// A non-blocking stream. Ownership: owns the stream; borrows the probe.
class OwnedStream {
 public:
  static Result<OwnedStream> make(Probe& probe) {
    CUstream handle = nullptr;
    SPILLWAY_RETURN_IF_ERROR(
        SPILLWAY_CALL(probe.api(), StreamCreateWithPriority, &handle, CU_STREAM_NON_BLOCKING, 0));
    return OwnedStream(probe, handle);
  }

  OwnedStream(OwnedStream&& other) noexcept
      : probe_(other.probe_), handle_(std::exchange(other.handle_, nullptr)) {}

  OwnedStream& operator=(OwnedStream&&) = delete;

  ~OwnedStream() {
    if (handle_ != nullptr) probe_->api().StreamDestroy(handle_);
  }

  CUstream handle() const { return handle_; }

 private:
  OwnedStream(Probe& probe, CUstream handle) : probe_(&probe), handle_(handle) {}

  Probe* probe_;
  CUstream handle_;
};

enum class Way { kIn, kOut };

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
