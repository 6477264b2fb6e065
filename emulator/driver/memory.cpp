// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/freeing.h"
#include "emulator/device/machine.h"
#include "emulator/driver/functions.h"

namespace spillway::emulator::driver {
namespace {

/// `from` is a device or a pool.
template <typename From>
CUresult allocate(Machine& machine, From&& from, CUdeviceptr* at, std::size_t bytes) {
  if (at == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const CUresult result = machine.allocations.allocate(from, bytes, at);
  if (result == CUDA_SUCCESS) device_allocations().add();
  return result;
}

/// Outside pools, new memory costs the host what a chunk of it would.
CUresult allocate_now(Machine& machine, int device, CUdeviceptr* at, std::size_t bytes) {
  const std::size_t before = machine.capacity.used(device);
  const CUresult result = allocate(machine, device, at, bytes);
  const std::size_t grown = machine.capacity.used(device) - before;
  if (grown > 0) {
    machine.clock.host_creates(grown);
    machine.clock.host_maps();
    machine.clock.host_allows(1, 1);
  }
  return result;
}

}  // namespace

CUresult MemGetInfo(std::size_t* free, std::size_t* total) {
  return call_on_device<"cuMemGetInfo">([&](Machine& machine, int device) {
    if (free == nullptr || total == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *total = machine.capacity.total();
    *free = *total - machine.capacity.used(device);
    return CUDA_SUCCESS;
  });
}

CUresult MemAlloc(CUdeviceptr* at, std::size_t bytes) {
  return call_on_device<"cuMemAlloc">(
      [&](Machine& machine, int device) { return allocate_now(machine, device, at, bytes); });
}

CUresult MemAllocPitch(
    CUdeviceptr* at, std::size_t* pitch, std::size_t width, std::size_t height, unsigned element) {
  return call_on_device<"cuMemAllocPitch">([&](Machine& machine, int device) {
    constexpr std::size_t kPitch = 512;
    const bool known_element = element == 4 || element == 8 || element == 16;
    if (at == nullptr || pitch == nullptr || !known_element || width == 0 || height == 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const std::size_t row = (width + kPitch - 1) / kPitch * kPitch;
    std::size_t bytes = 0;
    if (row < width || __builtin_mul_overflow(row, height, &bytes)) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const CUresult result = allocate_now(machine, device, at, bytes);
    if (result == CUDA_SUCCESS) *pitch = row;
    return result;
  });
}

CUresult MemFree(CUdeviceptr at) {
  return call<"cuMemFree">([&](Machine& machine) {
    if (at == 0) return CUDA_SUCCESS;
    return free_and_wait(machine, at);
  });
}

CUresult MemAllocAsync(CUdeviceptr* at, std::size_t bytes, CUstream stream) {
  return call_on_stream<"cuMemAllocAsync">(stream, [&](Machine& machine, Stream& on) {
    return allocate(machine, machine.allocations.current_pool(on.device), at, bytes);
  });
}

CUresult MemAllocFromPoolAsync(CUdeviceptr* at,
                               std::size_t bytes,
                               CUmemoryPool handle,
                               CUstream stream) {
  return call_on_stream<"cuMemAllocFromPoolAsync">(stream, [&](Machine& machine, Stream& /*on*/) {
    Pool* pool = machine.allocations.find_pool(handle);
    return pool == nullptr ? CUDA_ERROR_INVALID_VALUE : allocate(machine, *pool, at, bytes);
  });
}

CUresult MemFreeAsync(CUdeviceptr at, CUstream stream) {
  return call_on_stream<"cuMemFreeAsync">(stream, [&](Machine& machine, Stream& on) {
    return free_in_order(machine, on, at, "cuMemFreeAsync");
  });
}

CUresult MemGetAddressRange(CUdeviceptr* base, std::size_t* bytes, CUdeviceptr at) {
  return call<"cuMemGetAddressRange">([&](Machine& machine) {
    const Allocations::Block* block = machine.allocations.holding({at, at + 1});
    const auto range = block != nullptr ? Range::of(block->range.begin, block->asked)
                                        : machine.virtual_memory.mapping_of(at);
    if (!range) return CUDA_ERROR_NOT_FOUND;
    if (base != nullptr) *base = range->begin;
    if (bytes != nullptr) *bytes = range->bytes();
    return CUDA_SUCCESS;
  });
}

CUresult MemHostAlloc(void** at, std::size_t bytes, unsigned flags) {
  return call_on_device<"cuMemHostAlloc">([&](Machine& machine, int /*device*/) {
    constexpr unsigned kAllowed =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (at == nullptr || (flags & ~kAllowed) != 0) return CUDA_ERROR_INVALID_VALUE;
    if (bytes == 0) {
      *at = nullptr;
      return CUDA_SUCCESS;
    }
    const CUresult result = machine.host.allocate(bytes, at);
    if (result == CUDA_SUCCESS) host_registrations().add();
    return result;
  });
}

CUresult MemAllocHost(void** at, std::size_t bytes) {
  return MemHostAlloc(at, bytes, 0);
}

CUresult MemFreeHost(void* at) {
  return call<"cuMemFreeHost">([&](Machine& machine) { return free_host_and_wait(machine, at); });
}

CUresult MemHostRegister(void* at, std::size_t bytes, unsigned flags) {
  return call_on_device<"cuMemHostRegister">([&](Machine& machine, int /*device*/) {
    constexpr unsigned kAllowed = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
    constexpr unsigned kRefused = CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
    if ((flags & ~(kAllowed | kRefused)) != 0) return CUDA_ERROR_INVALID_VALUE;
    if ((flags & kRefused) != 0) return refuse("registering device or read-only memory");
    return register_host(machine, at, bytes);
  });
}

CUresult MemHostUnregister(void* at) {
  return call<"cuMemHostUnregister">(
      [&](Machine& machine) { return unregister_host(machine, at, "cuMemHostUnregister"); });
}

CUresult MemHostGetDevicePointer(CUdeviceptr* device_at, void* at, unsigned flags) {
  return call<"cuMemHostGetDevicePointer">([&](Machine& machine) {
    const auto range = Range::of(at, 1);
    if (device_at == nullptr || flags != 0 || !range || !machine.host.holds(*range)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *device_at = range->begin;
    return CUDA_SUCCESS;
  });
}

}  // namespace spillway::emulator::driver
