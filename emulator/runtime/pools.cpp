// SPDX-License-Identifier: Apache-2.0
#include "emulator/driver/functions.h"
#include "emulator/runtime/call.h"

#include <cstdint>

namespace driver = spillway::emulator::driver;
using spillway::emulator::runtime::enter;
using spillway::emulator::runtime::enter_on_device;

namespace {

// The runtime's types are the driver's under other names.
CUmemAccessDesc as_driver(const cudaMemAccessDesc& access) {
  return {{static_cast<CUmemLocationType>(access.location.type), access.location.id},
          static_cast<CUmemAccess_flags>(access.flags)};
}

CUmemPool_attribute as_driver(cudaMemPoolAttr attribute) {
  return static_cast<CUmemPool_attribute>(attribute);
}

}  // namespace

extern "C" {

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return enter<"cudaDeviceGetDefaultMemPool">(
      [&] { return driver::DeviceGetDefaultMemPool(pool, device); });
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* pool, int device) {
  return enter<"cudaDeviceGetMemPool">([&] { return driver::DeviceGetMemPool(pool, device); });
}

cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  return enter<"cudaDeviceSetMemPool">([&] { return driver::DeviceSetMemPool(device, pool); });
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  return enter<"cudaMemPoolCreate">([&] {
    if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUmemPoolProps same{};
    same.allocType = static_cast<CUmemAllocationType>(properties->allocType);
    same.handleTypes = static_cast<CUmemAllocationHandleType>(properties->handleTypes);
    same.location.type = static_cast<CUmemLocationType>(properties->location.type);
    same.location.id = properties->location.id;
    same.maxSize = properties->maxSize;
    return driver::MemPoolCreate(pool, &same);
  });
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return enter<"cudaMemPoolDestroy">([&] { return driver::MemPoolDestroy(pool); });
}

cudaError_t cudaMallocFromPoolAsync(void** at,
                                    size_t bytes,
                                    cudaMemPool_t pool,
                                    cudaStream_t stream) {
  return enter_on_device<"cudaMallocFromPoolAsync">([&] {
    if (at == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *at = nullptr;
    if (bytes == 0) return CUDA_SUCCESS;
    return driver::MemAllocFromPoolAsync(reinterpret_cast<CUdeviceptr*>(at), bytes, pool, stream);
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return enter<"cudaMemPoolGetAttribute">(
      [&] { return driver::MemPoolGetAttribute(pool, as_driver(attribute), value); });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return enter<"cudaMemPoolSetAttribute">(
      [&] { return driver::MemPoolSetAttribute(pool, as_driver(attribute), value); });
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool,
                                 const cudaMemAccessDesc* access,
                                 size_t count) {
  return enter<"cudaMemPoolSetAccess">([&] {
    if (access == nullptr && count != 0) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count; ++i) {
      const CUmemAccessDesc same = as_driver(access[i]);
      const CUresult result = driver::MemPoolSetAccess(pool, &same, 1);
      if (result != CUDA_SUCCESS) return result;
    }
    return CUDA_SUCCESS;
  });
}

cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags,
                                 cudaMemPool_t pool,
                                 cudaMemLocation* location) {
  return enter<"cudaMemPoolGetAccess">([&] {
    if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUmemLocation same{};
    same.type = static_cast<CUmemLocationType>(location->type);
    same.id = location->id;
    CUmemAccess_flags given = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    const CUresult result = driver::MemPoolGetAccess(&given, pool, &same);
    if (result == CUDA_SUCCESS) *flags = static_cast<cudaMemAccessFlags>(given);
    return result;
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
  return enter<"cudaMemPoolTrimTo">([&] { return driver::MemPoolTrimTo(pool, keep); });
}

// Memory that graphs allocate themselves, of which there is none: such nodes are not emulated.
cudaError_t cudaDeviceGetGraphMemAttribute(int device,
                                           cudaGraphMemAttributeType attribute,
                                           void* value) {
  return enter_on_device<"cudaDeviceGetGraphMemAttribute">([&] {
    const bool known =
        attribute >= cudaGraphMemAttrUsedMemCurrent && attribute <= cudaGraphMemAttrReservedMemHigh;
    if (value == nullptr || !known) return CUDA_ERROR_INVALID_VALUE;
    std::size_t unused = 0;
    const CUresult result = driver::DeviceTotalMem(&unused, device);
    if (result == CUDA_SUCCESS) *static_cast<std::uint64_t*>(value) = 0;
    return result;
  });
}
}
