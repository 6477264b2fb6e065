// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/heap/heap.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <array>
#include <utility>
#include <vector>

namespace spillway {

/// A heap's statistics in PyTorch's layout; "reserved" is the physical memory held from the driver.
/// PyTorch's small pool is the heap's small tier (blocks of at most 128 KiB), its large pool the
/// large one. Their peaks are what they are now.
c10::CachingDeviceAllocator::DeviceStats torch_stats(const HeapStats& heap,
                                                     const std::array<HeapStats, 2>& tiers);

/// The heap tracks no peaks of its tiers: makes those of both pools in `stats` the most that was
/// seen, which `seen` remembers.
void keep_pool_peaks(c10::CachingDeviceAllocator::DeviceStats& stats,
                     c10::CachingDeviceAllocator::DeviceStats& seen);

/// Takes the accumulated counts and bytes of `base` off `stats`.
void subtract_accumulated(c10::CachingDeviceAllocator::DeviceStats& stats,
                          const c10::CachingDeviceAllocator::DeviceStats& base);

/// A heap's segments and blocks as PyTorch's memory viewer reads them, but for their pool's name.
std::vector<std::pair<c10::CachingDeviceAllocator::SegmentInfo, PoolId>> torch_segments(
    c10::DeviceIndex device, const Heap& heap);

}  // namespace spillway
