// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/machine.h"

namespace spillway::emulator {

/// Rows of bytes, `pitch` apart. One row for a plain copy or fill.
struct Rows {
  std::uintptr_t at;
  std::size_t pitch;
  std::size_t width;
  std::size_t height;
};

/// What the host does after it has queued a copy.
enum class HostWait {
  kNever,      // ...Async: waits only where an end is pageable
  kAsBlocking  // waits, unless both ends are device memory
};

/// Queues a copy. Both ends may be device, page-locked or pageable memory.
/// Requires: equal width and height. Errors: CUDA_ERROR_INVALID_VALUE where an end leaves its
/// allocation or its access; nothing is queued then.
CUresult copy(Machine& machine, Stream& stream, Rows to, Rows from, HostWait wait);

/// Queues a fill of `count` times `unit` bytes (1, 2 or 4) of `value`. Errors: as copy.
CUresult fill(Machine& machine,
              Stream& stream,
              std::uintptr_t at,
              unsigned value,
              std::size_t unit,
              std::size_t count,
              HostWait wait);

/// One row of bytes.
inline Rows row(std::uintptr_t at, std::size_t bytes) {
  return {at, bytes, bytes, 1};
}

inline Rows row(const void* at, std::size_t bytes) {
  return row(reinterpret_cast<std::uintptr_t>(at), bytes);
}

}  // namespace spillway::emulator
