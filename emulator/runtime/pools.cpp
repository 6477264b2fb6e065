// SPDX-License-Identifier: Apache-2.0
#include "emulator/runtime/call.h"

namespace emu = spillway::emulator;
using emu::runtime::enter;

namespace {

/// `body(Pool&)`; a pool's address is its handle.
template <emu::Literal kName, typename Body>
cudaError_t with_pool(cudaMemPool_t handle, Body&& body) {
  return enter<kName>([&] {
    return emu::call<"cuMemPool">([&](emu::Machine& machine) {
      emu::Pool* pool = machine.allocations.find_pool(handle);
      if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
      return static_cast<CUresult>(body(*pool));
    });
  });
}

CUresult read(const emu::Pool& pool, cudaMemPoolAttr attribute, void* value) {
  switch (attribute) {
    case cudaMemPoolAttrUsedMemCurrent:
      *static_cast<cuuint64_t*>(value) = pool.used.now;
      return CUDA_SUCCESS;
    case cudaMemPoolAttrReservedMemCurrent:
      *static_cast<cuuint64_t*>(value) = pool.reserved.now;
      return CUDA_SUCCESS;
    case cudaMemPoolAttrUsedMemHigh:
      *static_cast<cuuint64_t*>(value) = pool.used.peak;
      return CUDA_SUCCESS;
    case cudaMemPoolAttrReservedMemHigh:
      *static_cast<cuuint64_t*>(value) = pool.reserved.peak;
      return CUDA_SUCCESS;
    default:
      return emu::refuse("this attribute of a memory pool");
  }
}

}  // namespace

extern "C" {

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
  return enter<"cudaDeviceGetDefaultMemPool">([&] {
    return emu::call<"cuDeviceGetDefaultMemPool">([&](emu::Machine& machine) {
      if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
      if (device < 0 || device >= machine.settings.devices) return CUDA_ERROR_INVALID_DEVICE;
      *pool = reinterpret_cast<cudaMemPool_t>(&machine.allocations.default_pool(device));
      return CUDA_SUCCESS;
    });
  });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return with_pool<"cudaMemPoolGetAttribute">(pool, [&](const emu::Pool& of) {
    return value == nullptr ? CUDA_ERROR_INVALID_VALUE : read(of, attribute, value);
  });
}

// Memory goes back to the device as soon as it is free, so reuse rules and thresholds have no
// effect.
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return with_pool<"cudaMemPoolSetAttribute">(pool, [&](emu::Pool& of) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (attribute == cudaMemPoolAttrUsedMemHigh) of.used.peak = of.used.now;
    if (attribute == cudaMemPoolAttrReservedMemHigh) of.reserved.peak = of.reserved.now;
    return CUDA_SUCCESS;
  });
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool,
                                 const cudaMemAccessDesc* access,
                                 size_t count) {
  return with_pool<"cudaMemPoolSetAccess">(pool, [&](emu::Pool& of) {
    if (access == nullptr) return CUDA_ERROR_INVALID_VALUE;
    auto allowed = of.access;
    for (size_t i = 0; i < count; ++i) {
      const cudaMemLocation location = access[i].location;
      if (location.type != cudaMemLocationTypeDevice) return CUDA_ERROR_INVALID_VALUE;
      if (location.id < 0 || location.id >= emu::settings().value().devices) {
        return CUDA_ERROR_INVALID_DEVICE;
      }
      allowed[static_cast<std::size_t>(location.id)] =
          static_cast<CUmemAccess_flags>(access[i].flags);
    }
    of.access = allowed;
    emu::rights_were_taken();
    return CUDA_SUCCESS;
  });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t /*keep*/) {
  return with_pool<"cudaMemPoolTrimTo">(pool, [](const emu::Pool&) { return CUDA_SUCCESS; });
}
}
