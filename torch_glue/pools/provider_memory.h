// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/driver/timeline.h"
#include "allocator/transfer/free_ranges.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <map>
#include <memory>
#include <vector>

namespace spillway {

/// The memory of a MemPool with an allocator of its own (MemPool(allocator)). Segments are divided
/// into blocks of one stream each. A segment without allocated blocks can be returned to its
/// allocator.
///
/// Threads: safe; the provider is called without a lock of ours.
/// Ownership: keeps the provider alive.
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

  /// Usable on `stream` at once. Null if the provider has no memory; passes on its exceptions.
  void* allocate(Bytes size, cudaStream_t stream);
  /// Frees an allocated block. Returns its size; zero if the address does not belong to this
  /// memory.
  Bytes free(void* at);
  bool record_use(void* at, cudaStream_t stream);
  /// The allocated block that contains `at`, and its base; size zero if there is none.
  [[nodiscard]] std::pair<void*, Block> find(void* at) const;

  /// Returns segments without an allocated block; waits for the device if necessary.
  void trim_sync();

  [[nodiscard]] bool empty() const;

  /// The segments with their blocks, for snapshots.
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
