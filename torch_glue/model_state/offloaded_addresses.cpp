// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/offloaded_addresses.h"

#include <algorithm>

namespace spillway {
namespace {

/// That of both allocators: kernels may be selected by alignment.
constexpr Bytes kAddressAlignment{512};
constexpr Bytes kReservation{1ULL << 38U};

}  // namespace

Result<driver::DevicePtr> OffloadedAddresses::take(Bytes size) {
  const Bytes rounded = size.rounded_up(kAddressAlignment);
  const LightLock lock(mutex_);
  std::vector<driver::DevicePtr>& returned = returned_[rounded];
  if (!returned.empty()) {
    const driver::DevicePtr at = returned.back();
    returned.pop_back();
    return at;
  }
  if (left_ < rounded) {
    const Bytes reserved = std::max(kReservation, rounded.rounded_up(kReservation));
    SPILLWAY_ASSIGN_OR_RETURN(next_, driver::reserve_addresses(device_, reserved));
    left_ = reserved;
  }
  const driver::DevicePtr at = next_;
  next_ = next_ + rounded;
  left_ = left_ - rounded;
  return at;
}

void OffloadedAddresses::give(driver::DevicePtr at, Bytes size) {
  const LightLock lock(mutex_);
  returned_[size.rounded_up(kAddressAlignment)].push_back(at);
}

}  // namespace spillway
