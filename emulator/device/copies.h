// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/machine.h"

#include <vector>

namespace spillway::emulator {

/// Rows of bytes, `pitch` apart. One row for a plain copy or fill.
struct Rows {
  std::uintptr_t at;
  std::size_t pitch;
  std::size_t width;
  std::size_t height;
};

/// How the host waits after it has queued a copy.
enum class HostWait {
  kNever,      // ...Async: waits only if an end is pageable
  kAsBlocking  // waits, unless both ends are device memory
};

/// Queues a copy. Both ends may be device, page-locked or pageable memory. The host waits if an end
/// is pageable or both ends are on the host, regardless of `wait`.
/// Requires: equal width and height, no width beyond its pitch.
/// Errors: CUDA_ERROR_INVALID_VALUE if an end exceeds its allocation or its access; nothing is
/// queued then.
CUresult copy(Machine& machine, Stream& stream, Rows to, Rows from, HostWait wait);

/// The repeated value of a fill: the low `unit` bytes (1, 2 or 4) of `value`.
struct Pattern {
  unsigned value;
  std::size_t unit;
};

/// Queues a fill; widths are in bytes. Errors: as copy, and for pageable or misaligned memory.
CUresult fill(Machine& machine, Stream& stream, Rows rows, Pattern pattern, HostWait wait);

/// One copy of a batch.
struct BatchedCopy {
  std::uintptr_t to;
  std::uintptr_t from;
  std::size_t bytes;
};

/// Queues all copies, unordered among themselves. The order checker reports copies that access the
/// same bytes.
/// Errors: as copy, for any of them; nothing is queued then.
CUresult copy_batch(Machine& machine, Stream& stream, const std::vector<BatchedCopy>& copies);

/// One row of bytes.
inline Rows row(std::uintptr_t at, std::size_t bytes) {
  return {at, bytes, bytes, 1};
}

inline Rows row(const void* at, std::size_t bytes) {
  return row(reinterpret_cast<std::uintptr_t>(at), bytes);
}

}  // namespace spillway::emulator
