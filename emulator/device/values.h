// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/machine.h"

namespace spillway::emulator {

/// A stream's memory operation: writes a value, or waits for one.
struct ValueOperation {
  std::uintptr_t at;
  std::uint64_t value;
  std::size_t bytes;  // 4 or 8
  unsigned flags;     // CUstreamWriteValue_flags or CUstreamWaitValue_flags
  bool waits;
};

/// Errors: CUDA_ERROR_INVALID_VALUE for flags, alignment, and memory that is neither device nor
/// page-locked memory; CUDA_ERROR_NOT_SUPPORTED for a flush of remote writes.
CUresult check_value(const Machine& machine, const ValueOperation& operation);

/// Queues it. The order checker treats both as atomic; a wait is ordered after the writes of its
/// address that were queued before it.
/// Requires: it has passed check_value.
void submit_value(Machine& machine, Stream& stream, const ValueOperation& operation);

}  // namespace spillway::emulator
