// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/freeing.h"
#include "emulator/driver/functions.h"
#include "emulator/runtime/call.h"

namespace emu = spillway::emulator;
namespace driver = spillway::emulator::driver;
using emu::runtime::address;
using emu::runtime::enter;
using emu::runtime::enter_on_device;

namespace {

cudaPointerAttributes attributes_of(const emu::Machine& machine, void* at) {
  cudaPointerAttributes is{};
  is.type = cudaMemoryTypeUnregistered;
  is.device = -1;
  const auto range = emu::Range::of(at, 1);
  if (!range) return is;
  const emu::Allocations::Block* block = machine.allocations.holding(*range);
  const auto device = block != nullptr ? std::optional<int>(block->device)
                                       : machine.virtual_memory.device_of(*range, false);
  if (device) {
    is.type = cudaMemoryTypeDevice;
    is.device = *device;
    is.devicePointer = at;
  } else if (machine.host.holds(*range)) {
    is.type = cudaMemoryTypeHost;
    is.device = emu::thread_state().device;
    is.devicePointer = is.hostPointer = at;
  }
  return is;
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** at, size_t bytes) {
  return enter_on_device<"cudaMalloc">([&] {
    if (at == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *at = nullptr;
    return bytes == 0 ? CUDA_SUCCESS : driver::MemAlloc(reinterpret_cast<CUdeviceptr*>(at), bytes);
  });
}

cudaError_t cudaMallocPitch(void** at, size_t* pitch, size_t width, size_t height) {
  return enter_on_device<"cudaMallocPitch">([&] {
    constexpr unsigned kElement = 16;
    return driver::MemAllocPitch(
        reinterpret_cast<CUdeviceptr*>(at), pitch, width, height, kElement);
  });
}

cudaError_t cudaFree(void* at) {
  return enter_on_device<"cudaFree">([&] { return driver::MemFree(address(at)); });
}

cudaError_t cudaMallocAsync(void** at, size_t bytes, cudaStream_t stream) {
  return enter_on_device<"cudaMallocAsync">([&] {
    if (at == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *at = nullptr;
    if (bytes == 0) return CUDA_SUCCESS;
    return driver::MemAllocAsync(reinterpret_cast<CUdeviceptr*>(at), bytes, stream);
  });
}

cudaError_t cudaFreeAsync(void* at, cudaStream_t stream) {
  return enter_on_device<"cudaFreeAsync">(
      [&] { return at == nullptr ? CUDA_SUCCESS : driver::MemFreeAsync(address(at), stream); });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return enter_on_device<"cudaMemGetInfo">([&] { return driver::MemGetInfo(free, total); });
}

cudaError_t cudaHostAlloc(void** at, size_t bytes, unsigned flags) {
  return enter_on_device<"cudaHostAlloc">([&] { return driver::MemHostAlloc(at, bytes, flags); });
}

cudaError_t cudaMallocHost(void** at, size_t bytes) {
  return enter_on_device<"cudaMallocHost">([&] { return driver::MemHostAlloc(at, bytes, 0); });
}

cudaError_t cudaFreeHost(void* at) {
  return enter_on_device<"cudaFreeHost">(
      [&] { return at == nullptr ? CUDA_SUCCESS : driver::MemFreeHost(at); });
}

cudaError_t cudaHostRegister(void* at, size_t bytes, unsigned flags) {
  return enter_on_device<"cudaHostRegister">(
      [&] { return driver::MemHostRegister(at, bytes, flags); });
}

cudaError_t cudaHostUnregister(void* at) {
  return enter_on_device<"cudaHostUnregister">([&] { return driver::MemHostUnregister(at); });
}

cudaError_t cudaHostGetDevicePointer(void** device_at, void* at, unsigned flags) {
  return enter_on_device<"cudaHostGetDevicePointer">([&] {
    return driver::MemHostGetDevicePointer(reinterpret_cast<CUdeviceptr*>(device_at), at, flags);
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* at) {
  return enter<"cudaPointerGetAttributes">([&] {
    return emu::call<"cuPointerGetAttributes">([&](emu::Machine& machine) {
      if (attributes == nullptr) return CUDA_ERROR_INVALID_VALUE;
      *attributes = attributes_of(machine, const_cast<void*>(at));
      return CUDA_SUCCESS;
    });
  });
}
}
