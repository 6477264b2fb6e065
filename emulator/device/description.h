// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

#include <cuda.h>

#include <string>

namespace spillway::emulator {

inline constexpr int kCudaVersion = 13000;
inline constexpr const char* kDeviceName = "Emulated GPU (Spillway)";
inline constexpr int kThreadsPerBlock = 1024;
inline constexpr int kRegisters = 65536;
inline constexpr int kSharedPerBlock = 49152;
inline constexpr int kWarp = 32;

/// The properties that differ between chips, by default those of a GH100. Programs choose their
/// kernels by them, and thereby saved tensors and workspaces.
struct Chip {
  int major = 9;
  int minor = 0;
  int threads_per_multiprocessor = 2048;
  int shared_per_multiprocessor = 228 << 10;  // bytes; a block may request all but 1 KiB
  int multiprocessors = 132;

  [[nodiscard]] int shared_per_block_opt_in() const { return shared_per_multiprocessor - 1024; }
};

/// The chip of a compute capability such as "8.0". Errors: kInvalidArgument for unknown ones.
Result<Chip> chip_of(const std::string& capability);

/// The device's attribute; 0 for every feature that is not emulated. Runtime and driver use the
/// same numbers.
int device_attribute(const Chip& chip, CUdevice_attribute attribute);

}  // namespace spillway::emulator
