// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/calibration/probe.h"

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

  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(OwnedStream&&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;

  ~OwnedStream() {
    if (handle_ != nullptr) probe_->api().StreamDestroy(handle_);
  }

  [[nodiscard]] CUstream handle() const { return handle_; }

 private:
  OwnedStream(Probe& probe, CUstream handle) : probe_(&probe), handle_(handle) {}

  Probe* probe_;
  CUstream handle_;
};

enum class Way { kIn, kOut };

}  // namespace spillway::calibration
