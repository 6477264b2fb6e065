// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/base/result.h"
#include "allocator/driver/api.h"
#include "allocator/heap/heap.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace spillway {

/// Limits of the reserved bytes of a device's heap, set by programs.
/// Threads: safe. Ownership: borrows the device's heap.
class DeviceLimits {
 public:
  /// The smaller one of kFraction and kAbsolute applies.
  ///   kFraction: PyTorch's per-process memory fraction. kAbsolute: set by the caller. kSoft: past
  ///   it the heap first releases cached memory, then grows anyway.
  enum class Limit : std::uint8_t { kFraction, kAbsolute, kSoft, kCount };

  DeviceLimits(const driver::Device& device, Heap& heap) : device_(device), heap_(heap) {}

  /// Sets a limit; zero removes it. If more is reserved, cached memory is released now. Allocated
  /// blocks stay; the heap is out of memory at its next growth.
  /// Stream: blocks the host if memory is released.
  /// Errors: kInvalidArgument if the limit exceeds the device's memory; kDriver. Nothing has
  /// changed then.
  Status set(Limit which, Bytes limit);
  /// Zero if there is none.
  [[nodiscard]] Bytes of(Limit which) const;

 private:
  const driver::Device device_;
  Heap& heap_;
  mutable Mutex mutex_;
  std::array<Bytes, static_cast<std::size_t>(Limit::kCount)> limits_ SPILLWAY_GUARDED_BY(mutex_){};
};

}  // namespace spillway
