// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/driver/timelines.h"
#include "allocator/transfer/free_ranges.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <map>
#include <memory>
#include <vector>

namespace spillway {

/// The memory of a MemPool whose segments come from another owner's allocator (MemPool(allocator)).
/// Segments are divided into blocks of one stream each, and go back to their allocator when nothing
/// needs them: never while a block lives.
///
/// Threads: safe; the provider is called without a lock of ours. Ownership: keeps the provider.
class ProviderMemory {
 public:
  struct Block {
    Bytes size;
    Bytes requested;
    cudaStream_t stream = nullptr;
    std::vector<cudaStream_t> users;
  };

  struct Segment {
    std::byte* at;
    Bytes size;
    cudaStream_t stream;
  };

  ProviderMemory(driver::Device device,
                 std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator> provider);

  [[nodiscard]] c10::DeviceIndex device() const {
    return static_cast<c10::DeviceIndex>(device_.id);
  }

  /// Usable on `stream` at once. Null where the provider has no more; throws what it throws.
  void* allocate(Bytes size, cudaStream_t stream);
  /// Releases a live block: its size, zero where `at` is none of this memory's.
  Bytes free(void* at);
  bool record_use(void* at, cudaStream_t stream);
  /// The live block that contains `at` and its base; size zero where there is none.
  [[nodiscard]] std::pair<void*, Block> find(void* at) const;

  /// Waits for the device where it must, and gives segments without a live block back.
  void trim_sync();

  [[nodiscard]] bool empty() const;

  /// Segments with their blocks, for snapshots.
  void describe(c10::DeviceIndex device,
                c10::MempoolId_t pool,
                std::vector<c10::CachingDeviceAllocator::SegmentInfo>& into) const;

 private:
  /// Free memory of `stream` that it can use now.
  std::byte* take(Bytes size, cudaStream_t stream);

  const driver::Device device_;
  const std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator> provider_;
  driver::Timelines timelines_;
  mutable Mutex mutex_;
  std::map<cudaStream_t, FreeRanges> free_ SPILLWAY_GUARDED_BY(mutex_);
  std::map<std::byte*, Block> live_ SPILLWAY_GUARDED_BY(mutex_);
  std::map<std::byte*, Segment> segments_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
