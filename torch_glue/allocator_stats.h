// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/heap/heap.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <utility>
#include <vector>

namespace spillway {

/// A heap's statistics in PyTorch's layout; "reserved" is the physical memory held from the driver.
/// Only the aggregate is filled: PyTorch's small and large pools have no counterpart.
c10::CachingDeviceAllocator::DeviceStats torch_stats(const HeapStats& heap);

/// Takes the accumulated counts and bytes of `base` off `stats`.
void subtract_accumulated(c10::CachingDeviceAllocator::DeviceStats& stats,
                          const c10::CachingDeviceAllocator::DeviceStats& base);

/// A heap's segments and blocks as PyTorch's memory viewer reads them, but for their pool's name.
std::vector<std::pair<c10::CachingDeviceAllocator::SegmentInfo, PoolId>> torch_segments(
    c10::DeviceIndex device, const Heap& heap);

}  // namespace spillway
