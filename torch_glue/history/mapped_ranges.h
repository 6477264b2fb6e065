// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/heap/heap.h"

#include <vector>

namespace spillway {

/// A contiguous range of device memory that a heap has mapped for a stream.
struct MappedRange {
  CUdeviceptr at;
  std::uint64_t size;
  CUstream stream;

  [[nodiscard]] CUdeviceptr end() const { return at + size; }
};

/// Detects the ranges that a heap has mapped and unmapped since the last call.
/// Threads: guarded by the owner's lock.
class MappedRanges {
 public:
  struct Changes {
    std::vector<MappedRange> unmapped;
    std::vector<MappedRange> mapped;
  };

  /// The difference to the last call's segments; both are in address order.
  Changes update(const std::vector<HeapSegmentInfo>& now);

 private:
  std::vector<MappedRange> ranges_;
};

}  // namespace spillway
