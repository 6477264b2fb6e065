// SPDX-License-Identifier: Apache-2.0
#include "allocator/driver/handles.h"

#include "allocator/base/process.h"

#include <atomic>
#include <string>

namespace spillway::driver {
namespace {

std::atomic<std::uint64_t> allocations{0};
std::atomic<std::uint64_t> registrations{0};
std::atomic<std::uint64_t> host_syncs{0};
std::atomic<std::uint64_t> lost_streams{0};
std::atomic<std::uint64_t> sleeps{0};

/// Set by a CurrentDevice of this thread. Read several times per copy, so it is accessed without a
/// call; see allocator/tag/tag.cpp.
[[gnu::tls_model("initial-exec")]] thread_local constinit CUcontext innermost = nullptr;

}  // namespace

CurrentDevice::CurrentDevice(const Api& api, CUcontext context) : api_(api), around_(innermost) {
  if (around_ == context) return;
  pushed_ = api.CtxPushCurrent(context) == CUDA_SUCCESS;
  if (pushed_) innermost = context;
}

CurrentDevice::~CurrentDevice() {
  if (!pushed_) return;
  CUcontext popped = nullptr;
  api_.CtxPopCurrent(&popped);
  innermost = around_;
}

Result<Device> Device::open(const Api& api, DeviceId id) {
  CUdevice device = 0;
  CUcontext context = nullptr;
  SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(api, DeviceGet, &device, static_cast<int>(id)));
  SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(api, DevicePrimaryCtxRetain, &context, device));
  return Device{&api, id, context};
}

Result<MemoryInfo> memory_info(const Device& device) {
  const CurrentDevice current(*device.api, device.context);
  std::size_t free = 0;
  std::size_t total = 0;
  SPILLWAY_RETURN_IF_ERROR(SPILLWAY_CALL(*device.api, MemGetInfo, &free, &total));
  return MemoryInfo{Bytes{free}, Bytes{total}};
}

Result<DevicePtr> reserve_addresses(const Device& device, Bytes size) {
  const CurrentDevice current(*device.api, device.context);
  CUdeviceptr begin = 0;
  const Status status =
      SPILLWAY_CALL(*device.api, MemAddressReserve, &begin, size.count(), 0, 0, 0);
  if (status.ok()) return DevicePtr(begin);
  const std::string limit = address_space_limit();
  if (status.code() != Code::kOutOfDeviceMemory || limit.empty()) return status;
  return SPILLWAY_ERROR(Code::kOutOfHostMemory,
                        readable(size) + " of addresses for device memory cannot be reserved (" +
                            status.detail() + limit +
                            "). Raise RLIMIT_AS, or remove it with `ulimit -v unlimited`.");
}

CUmemAccessDesc access_of(DeviceId device) {
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = static_cast<int>(device);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return access;
}

Counters counters() {
  return {allocations.load(),
          registrations.load(),
          host_syncs.load(),
          lost_streams.load(),
          sleeps.load()};
}

void count_allocation() {
  allocations.fetch_add(1, std::memory_order_relaxed);
}

void count_registration() {
  registrations.fetch_add(1, std::memory_order_relaxed);
}

void count_host_sync() {
  host_syncs.fetch_add(1, std::memory_order_relaxed);
}

void count_lost_stream() {
  lost_streams.fetch_add(1, std::memory_order_relaxed);
}

void count_sleep() {
  sleeps.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace spillway::driver
