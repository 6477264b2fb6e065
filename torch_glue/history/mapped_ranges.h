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

/// Notices what a heap has mapped and unmapped since it was last looked at. Threads: the owner's
/// lock.
class MappedRanges {
 public:
  struct Changes {
    std::vector<MappedRange> unmapped;
    std::vector<MappedRange> mapped;
  };

  /// What differs from the last call's segments (in address order, as `now` is).
  Changes update(const std::vector<HeapSegmentInfo>& now);

 private:
  std::vector<MappedRange> ranges_;
};

}  // namespace spillway
