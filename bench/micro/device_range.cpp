// SPDX-License-Identifier: Apache-2.0
#include "bench/micro/device_range.h"

#include <utility>

namespace spillway::micro {
Result<DeviceRange> DeviceRange::make(Probe& probe, Bytes chunk, std::size_t count) {
  DeviceRange range(probe, chunk, count);
  const driver::Api& api = probe.api();
  const Bytes size{chunk.count() * count};
  CUmemAllocationProp kind{};
  kind.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  kind.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  CUmemAccessDesc access{};
  access.location = kind.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  Status status;
  range.cost_.reserve = time_of_calls(
      [&] { status = SPILLWAY_CALL(api, MemAddressReserve, &range.at_, size.count(), 0, 0, 0); });
  SPILLWAY_RETURN_IF_ERROR(status);
  range.cost_.create = time_of_calls([&] {
    while (status.ok() && range.chunks_.size() < count) {
      CUmemGenericAllocationHandle handle = 0;
      status = SPILLWAY_CALL(api, MemCreate, &handle, chunk.count(), &kind, 0);
      if (status.ok()) range.chunks_.push_back(handle);
    }
  });
  SPILLWAY_RETURN_IF_ERROR(status);
  range.cost_.map = time_of_calls([&] {
    for (; status.ok() && range.mapped_ < count; range.mapped_ += status.ok() ? 1U : 0U) {
      const CUdeviceptr at = range.at_ + range.mapped_ * chunk.count();
      status = SPILLWAY_CALL(api, MemMap, at, chunk.count(), 0, range.chunks_[range.mapped_], 0);
    }
  });
  SPILLWAY_RETURN_IF_ERROR(status);
  range.cost_.access = time_of_calls(
      [&] { status = SPILLWAY_CALL(api, MemSetAccess, range.at_, size.count(), &access, 1); });
  SPILLWAY_RETURN_IF_ERROR(status);
  return range;
}

DeviceRange::DeviceRange(DeviceRange&& other) noexcept
    : probe_(other.probe_),
      chunk_(other.chunk_),
      count_(other.count_),
      at_(std::exchange(other.at_, 0)),
      chunks_(std::exchange(other.chunks_, {})),
      mapped_(std::exchange(other.mapped_, 0)),
      cost_(other.cost_) {}

Seconds DeviceRange::unmap() {
  return time_of_calls([&] {
    for (; mapped_ > 0; --mapped_)
      probe_->api().MemUnmap(at_ + (mapped_ - 1) * chunk_.count(), chunk_.count());
  });
}

Seconds DeviceRange::release() {
  return time_of_calls([&] {
    for (const CUmemGenericAllocationHandle handle : chunks_)
      probe_->api().MemRelease(handle);
    chunks_.clear();
  });
}

DeviceRange::~DeviceRange() {
  unmap();
  release();
  if (at_ != 0) probe_->api().MemAddressFree(at_, chunk_.count() * count_);
}

}  // namespace spillway::micro
