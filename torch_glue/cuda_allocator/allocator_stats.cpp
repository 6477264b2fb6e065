// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/cuda_allocator/allocator_stats.h"

#include <algorithm>

namespace spillway {
namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using TorchStats = c10::CachingDeviceAllocator::DeviceStats;

std::int64_t signed_of(std::uint64_t value) {
  return static_cast<std::int64_t>(value);
}

std::int64_t signed_of(Bytes bytes) {
  return signed_of(bytes.count());
}

struct Level {
  std::int64_t now = 0;
  std::int64_t peak = 0;
  std::int64_t total = 0;
};

StatArray aggregate(const Level& level) {
  StatArray array{};
  array[0] = Stat{level.now, level.peak, level.total, level.total - level.now};
  return array;
}

/// The entry `pool` of every array: 1 for the small pool, 2 for the large one.
void fill_pool(TorchStats& stats, std::size_t pool, const HeapStats& tier) {
  const auto set = [pool](StatArray& array, std::int64_t now, std::int64_t total) {
    array.at(pool) = Stat{now, now, total, total - now};
  };
  set(stats.allocation, signed_of(tier.allocated_blocks), signed_of(tier.allocations));
  set(stats.allocated_bytes, signed_of(tier.allocated), signed_of(tier.allocated_total));
  set(stats.requested_bytes, signed_of(tier.requested), signed_of(tier.requested_total));
  stats.active.at(pool) = stats.allocation.at(pool);
  stats.active_bytes.at(pool) = stats.allocated_bytes.at(pool);
  // These have no history by tier.
  set(stats.segment, signed_of(tier.driver_allocations), signed_of(tier.driver_allocations));
  set(stats.reserved_bytes, signed_of(tier.reserved), signed_of(tier.reserved));
  set(stats.inactive_split, signed_of(tier.stranded_blocks), signed_of(tier.stranded_blocks));
  set(stats.inactive_split_bytes, signed_of(tier.stranded), signed_of(tier.stranded));
}

constexpr StatArray TorchStats::*kArrays[] = {&TorchStats::allocation,
                                              &TorchStats::segment,
                                              &TorchStats::active,
                                              &TorchStats::inactive_split,
                                              &TorchStats::allocated_bytes,
                                              &TorchStats::reserved_bytes,
                                              &TorchStats::active_bytes,
                                              &TorchStats::inactive_split_bytes,
                                              &TorchStats::requested_bytes};

c10::CachingDeviceAllocator::BlockInfo block_info(const HeapBlockInfo& block) {
  c10::CachingDeviceAllocator::BlockInfo info;
  info.size = block.size.count();
  info.requested_size = block.requested.count();
  info.allocated = block.allocated;
  info.active = block.allocated || block.fenced;
  return info;
}

c10::CachingDeviceAllocator::SegmentInfo segment_at(c10::DeviceIndex device,
                                                    driver::DevicePtr at,
                                                    CUstream stream) {
  c10::CachingDeviceAllocator::SegmentInfo segment;
  segment.device = device;
  segment.address = at.address();
  segment.stream = stream;
  segment.is_large = true;
  segment.is_expandable = true;
  return segment;
}

}  // namespace

TorchStats torch_stats(const HeapStats& heap, const std::array<HeapStats, 2>& tiers) {
  const Level blocks{signed_of(heap.allocated_blocks),
                     signed_of(heap.allocated_blocks_peak),
                     signed_of(heap.allocations)};
  const Level segments{signed_of(heap.driver_allocations - heap.driver_releases),
                       signed_of(heap.driver_allocations - heap.driver_releases),
                       signed_of(heap.driver_allocations)};
  const Level allocated{
      signed_of(heap.allocated), signed_of(heap.allocated_peak), signed_of(heap.allocated_total)};
  const Level requested{
      signed_of(heap.requested), signed_of(heap.requested_peak), signed_of(heap.requested_total)};
  const Level reserved{
      signed_of(heap.reserved), signed_of(heap.reserved_peak), signed_of(heap.reserved_total)};

  TorchStats stats;
  stats.allocation = stats.active = aggregate(blocks);
  stats.segment = aggregate(segments);
  stats.allocated_bytes = stats.active_bytes = aggregate(allocated);
  stats.requested_bytes = aggregate(requested);
  stats.reserved_bytes = aggregate(reserved);
  // The heap has no history of stranded bytes: the present value stands for all.
  const std::int64_t stranded = signed_of(heap.stranded);
  const std::int64_t beside = signed_of(heap.stranded_blocks);
  stats.inactive_split_bytes = aggregate({stranded, stranded, stranded});
  stats.inactive_split = aggregate({beside, beside, beside});
  for (std::size_t tier = 0; tier < tiers.size(); ++tier)
    fill_pool(stats, tier + 1, tiers.at(tier));
  stats.num_device_alloc = signed_of(heap.driver_allocations);
  stats.num_device_free = signed_of(heap.driver_releases);
  return stats;
}

void keep_pool_peaks(TorchStats& stats, TorchStats& seen) {
  for (const auto array : kArrays) {
    for (std::size_t pool = 1; pool < (stats.*array).size(); ++pool) {
      std::int64_t& peak = (seen.*array).at(pool).peak;
      peak = std::max(peak, (stats.*array).at(pool).current);
      (stats.*array).at(pool).peak = peak;
    }
  }
}

void subtract_accumulated(TorchStats& stats, const TorchStats& base) {
  for (const auto array : kArrays) {
    for (size_t kind = 0; kind < (stats.*array).size(); ++kind) {
      (stats.*array)[kind].allocated -= (base.*array)[kind].allocated;
      (stats.*array)[kind].freed -= (base.*array)[kind].freed;
    }
  }
  stats.num_alloc_retries -= base.num_alloc_retries;
  stats.num_ooms -= base.num_ooms;
  stats.num_device_alloc -= base.num_device_alloc;
  stats.num_device_free -= base.num_device_free;
}

std::vector<std::pair<c10::CachingDeviceAllocator::SegmentInfo, PoolId>> torch_segments(
    c10::DeviceIndex device, const Heap& heap) {
  std::vector<std::pair<c10::CachingDeviceAllocator::SegmentInfo, PoolId>> segments;
  for (const HeapSegmentInfo& from : heap.view().segments()) {
    bool open = false;
    for (const HeapBlockInfo& block : from.blocks) {
      // A paused block's addresses have no memory, like unmapped ones of an expandable segment.
      if (block.evicted) {
        open = false;
        continue;
      }
      if (!open) segments.emplace_back(segment_at(device, block.at, from.stream), from.pool);
      open = true;
      c10::CachingDeviceAllocator::SegmentInfo& segment = segments.back().first;
      segment.blocks.push_back(block_info(block));
      segment.total_size += block.size.count();
      segment.requested_size += block.requested.count();
      if (block.allocated) segment.allocated_size += block.size.count();
      if (block.allocated || block.fenced) segment.active_size += block.size.count();
    }
  }
  return segments;
}

}  // namespace spillway
