// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/fence_set.h"

#include <algorithm>

namespace spillway {

void FenceSet::add(driver::Fence fence) {
  if (!fence.set()) return;
  for (driver::Fence& known : fences_) {
    if (known.timeline == fence.timeline) {
      known.point = std::max(known.point, fence.point);
      return;
    }
  }
  fences_.push_back(fence);
}

void FenceSet::add(const FenceSet& other) {
  for (const driver::Fence fence : other.fences_)
    add(fence);
}

bool FenceSet::drop_passed() {
  std::erase_if(fences_, [](driver::Fence fence) { return driver::Timeline::passed(fence); });
  return fences_.empty();
}

Result<std::uint64_t> FenceSet::wait(driver::Stream waiter) const {
  for (const driver::Fence fence : fences_) {
    SPILLWAY_RETURN_IF_ERROR(driver::Timeline::wait(waiter, fence));
  }
  return std::uint64_t{fences_.size()};
}

Status FenceSet::wait_sync() const {
  for (const driver::Fence fence : fences_) {
    SPILLWAY_RETURN_IF_ERROR(driver::Timeline::wait_sync(fence));
  }
  return {};
}

}  // namespace spillway
