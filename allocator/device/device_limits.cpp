// SPDX-License-Identifier: Apache-2.0
#include "allocator/device/device_limits.h"

#include <algorithm>
#include <string>

namespace spillway {

Status DeviceLimits::set(Limit which, Bytes limit) {
  SPILLWAY_ASSIGN_OR_RETURN(const driver::MemoryInfo memory, driver::memory_info(device_));
  if (limit > memory.total) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "memory limit " + readable(limit) + " is more than device " +
                              std::to_string(static_cast<int>(device_.id)) +
                              " has: expected a size above 0 and at most " +
                              readable(memory.total) + " (" + std::to_string(memory.total.count()) +
                              " bytes)");
  }
  const Lock lock(mutex_);
  limits_.at(static_cast<std::size_t>(which)) = limit;
  const Bytes fraction = limits_.at(static_cast<std::size_t>(Limit::kFraction));
  const Bytes absolute = limits_.at(static_cast<std::size_t>(Limit::kAbsolute));
  const Bytes soft = limits_.at(static_cast<std::size_t>(Limit::kSoft));
  const Bytes hard =
      fraction.zero() || absolute.zero() ? fraction + absolute : std::min(fraction, absolute);
  heap_.limits().set_limit(hard);
  heap_.limits().set_soft_limit(soft);
  const Bytes reserved = heap_.view().reserved();
  if ((!hard.zero() && reserved > hard) || (!soft.zero() && reserved > soft)) heap_.trim_sync();
  return {};
}

Bytes DeviceLimits::of(Limit which) const {
  const Lock lock(mutex_);
  return limits_.at(static_cast<std::size_t>(which));
}

}  // namespace spillway
