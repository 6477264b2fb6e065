// SPDX-License-Identifier: Apache-2.0
// PyTorch's statistics of the heap.
#include "torch_glue/cuda_allocator/allocator_stats.h"
#include "torch_glue/cuda_allocator/cuda_allocator.h"

namespace spillway {

c10::CachingDeviceAllocator::DeviceStats SpillwayAllocator::getDeviceStats(c10::DeviceIndex index) {
  auto stats = raw_stats(index);
  const Lock lock(mutex_);
  const auto base = stats_base_.find(index);
  if (base != stats_base_.end()) subtract_accumulated(stats, base->second);
  return stats;
}

c10::CachingDeviceAllocator::DeviceStats SpillwayAllocator::raw_stats(c10::DeviceIndex index) {
  const Heap& heap = device(index).heap();
  auto stats = torch_stats(heap.stats(), heap.view().stats_by_tier());
  const Lock lock(mutex_);
  keep_pool_peaks(stats, pool_peaks_[index]);
  const auto retries = retries_.find(index);
  if (retries != retries_.end()) stats.num_alloc_retries = retries->second;
  const auto errors = out_of_memory_.find(index);
  if (errors != out_of_memory_.end()) stats.num_ooms = errors->second;
  return stats;
}

void SpillwayAllocator::resetAccumulatedStats(c10::DeviceIndex index) {
  const auto now = raw_stats(index);
  const Lock lock(mutex_);
  stats_base_[index] = now;
}

void SpillwayAllocator::resetPeakStats(c10::DeviceIndex index) {
  device(index).heap().view().reset_peaks();
  const Lock lock(mutex_);
  pool_peaks_.erase(index);
}

}  // namespace spillway
