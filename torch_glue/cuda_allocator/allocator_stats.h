// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/heap/heap.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <array>
#include <utility>
#include <vector>

namespace spillway {

/// A heap's statistics in PyTorch's layout; "reserved" is the physical memory allocated from the
/// driver. PyTorch's small pool is the heap's small tier (blocks of at most 128 KiB); its large
/// pool is the large tier. Both pools' peaks equal their present values.
c10::CachingDeviceAllocator::DeviceStats torch_stats(const HeapStats& heap,
                                                     const std::array<HeapStats, 2>& tiers);

/// Replaces the peaks of both pools in `stats` by the largest values seen in calls so far, which
/// `seen` stores. The heap tracks no peaks per tier.
void keep_pool_peaks(c10::CachingDeviceAllocator::DeviceStats& stats,
                     c10::CachingDeviceAllocator::DeviceStats& seen);

/// Subtracts the accumulated counts and bytes of `base` from `stats`.
void subtract_accumulated(c10::CachingDeviceAllocator::DeviceStats& stats,
                          const c10::CachingDeviceAllocator::DeviceStats& base);

/// A heap's segments and blocks in the format of PyTorch's memory viewer, without the names of
/// pools.
std::vector<std::pair<c10::CachingDeviceAllocator::SegmentInfo, PoolId>> torch_segments(
    c10::DeviceIndex device, const Heap& heap);

}  // namespace spillway
