// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/micro/device_range.h"
#include "bench/micro/device_time.h"

#include <optional>

namespace spillway::micro {

/// What a kernel is bound by.
enum class Kernel { kFma, kTriad, kGemm, kAttention, kEmpty };

constexpr const char* kernel_name(Kernel kernel) {
  constexpr const char* kNames[] = {"fma", "triad", "gemm", "attention", "empty"};
  return kNames[static_cast<int>(kernel)];
}

/// What one launch does.
struct KernelWork {
  double flops;
  std::uint64_t bytes;  // of device memory that it must read and write
};

KernelWork work_of(Kernel kernel);

/// kernels.cu, as text.
extern const char* const kKernelsSource;

/// The kernels of kernels.cu, compiled and loaded, with memory to work on. On the emulated GPU,
/// which runs no kernels, a launch costs the stream what its work is modeled to take.
/// Ownership: owns the memory; borrows the probe.
class Kernels {
 public:
  /// Errors: kNoDriver and kInvalidArgument if the kernels cannot be created (the message is
  /// "skipped: REASON"); kOutOfDeviceMemory, kDriver.
  static Result<std::unique_ptr<Kernels>> make(Probe& probe);

  /// The emulated GPU's stream is reported what a kernel costs when it is queued: it cannot be
  /// held.
  static DeviceTime::Hold hold() {
    return driver::emulated() ? DeviceTime::Hold::kNot : DeviceTime::Hold::kUntilQueued;
  }

  /// Launches a kernel. Stream: no wait. Errors: kDriver.
  Status launch(Kernel kernel, CUstream stream);

  /// `launches` of one kernel, one after the other, on this object's stream. Requires: this object
  /// outlives the lane.
  Lane lane(Kernel kernel, std::uint64_t launches);

 private:
  Kernels(Probe& probe, OwnedStream stream) : probe_(probe), stream_(std::move(stream)) {}

  Status load();

  Probe& probe_;
  OwnedStream stream_;
  std::optional<DeviceRange> memory_;
};

}  // namespace spillway::micro
