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

/// What the host does after it has queued a copy.
enum class HostWait {
  kNever,      // ...Async: waits only where an end is pageable
  kAsBlocking  // waits, unless both ends are device memory
};

/// Queues a copy. Both ends may be device, page-locked or pageable memory. The host waits for one
/// that has a pageable end, or two on the host, whatever `wait` says.
/// Requires: equal width and height, no width beyond its pitch. Errors: CUDA_ERROR_INVALID_VALUE
/// where an end leaves its allocation or its access; nothing is queued then.
CUresult copy(Machine& machine, Stream& stream, Rows to, Rows from, HostWait wait);

/// What a fill repeats: the low `unit` bytes (1, 2 or 4) of `value`.
struct Pattern {
  unsigned value;
  std::size_t unit;
};

/// Queues a fill; widths are in bytes. Errors: as copy, and for pageable memory and what is not
/// aligned to the unit.
CUresult fill(Machine& machine, Stream& stream, Rows rows, Pattern pattern, HostWait wait);

/// One of the copies of a batch.
struct BatchedCopy {
  std::uintptr_t to;
  std::uintptr_t from;
  std::size_t bytes;
};

/// Queues all, in no order among themselves: copies that touch the same bytes are reported where
/// the checker is on. Errors: as copy, for any of them; nothing is queued then.
CUresult copy_batch(Machine& machine, Stream& stream, const std::vector<BatchedCopy>& copies);

/// One row of bytes.
inline Rows row(std::uintptr_t at, std::size_t bytes) {
  return {at, bytes, bytes, 1};
}

inline Rows row(const void* at, std::size_t bytes) {
  return row(reinterpret_cast<std::uintptr_t>(at), bytes);
}

}  // namespace spillway::emulator
