// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/virtual_memory.h"

#include "emulator/device/freeing.h"
#include "emulator/device/machine.h"
#include "emulator/driver/functions.h"

namespace spillway::emulator::driver {

CUresult MemGetAllocationGranularity(std::size_t* granularity,
                                     const CUmemAllocationProp* properties,
                                     CUmemAllocationGranularity_flags /*option*/) {
  return call<"cuMemGetAllocationGranularity">([&](Machine& /*machine*/) {
    if (granularity == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *granularity = kGranularity;
    return CUDA_SUCCESS;
  });
}

CUresult MemAddressReserve(CUdeviceptr* at,
                           std::size_t bytes,
                           std::size_t alignment,
                           CUdeviceptr hint,
                           unsigned long long flags) {
  return call<"cuMemAddressReserve">([&](Machine& machine) {
    if (at == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return machine.virtual_memory.reserve(bytes, alignment, hint, at);
  });
}

CUresult MemAddressFree(CUdeviceptr at, std::size_t bytes) {
  return call<"cuMemAddressFree">(
      [&](Machine& machine) { return machine.virtual_memory.unreserve(at, bytes); });
}

CUresult MemCreate(CUmemGenericAllocationHandle* handle,
                   std::size_t bytes,
                   const CUmemAllocationProp* properties,
                   unsigned long long flags) {
  return call<"cuMemCreate">([&](Machine& machine) {
    if (handle == nullptr || properties == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (properties->location.type == CU_MEM_LOCATION_TYPE_HOST ||
        properties->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA) {
      return refuse("host memory from cuMemCreate");
    }
    const CUresult result = machine.virtual_memory.create(bytes, *properties, handle);
    if (result == CUDA_SUCCESS) {
      device_allocations().add();
      machine.clock.host_creates(bytes);
    }
    return result;
  });
}

CUresult MemRelease(CUmemGenericAllocationHandle handle) {
  return call<"cuMemRelease">([&](Machine& machine) {
    const std::size_t bytes = machine.virtual_memory.bytes_of(handle);
    const CUresult result = machine.virtual_memory.release(handle);
    if (result == CUDA_SUCCESS) machine.clock.host_releases(bytes);
    return result;
  });
}

CUresult MemMap(CUdeviceptr at,
                std::size_t bytes,
                std::size_t offset,
                CUmemGenericAllocationHandle handle,
                unsigned long long flags) {
  return call<"cuMemMap">([&](Machine& machine) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    std::uintptr_t first = at;
    const CUresult result = machine.virtual_memory.map(at, bytes, offset, handle, &first);
    if (result != CUDA_SUCCESS) return result;
    machine.clock.host_maps();
    if (first != at) machine.ordering.add_view({at, at + bytes}, first);
    return CUDA_SUCCESS;
  });
}

CUresult MemUnmap(CUdeviceptr at, std::size_t bytes) {
  return call<"cuMemUnmap">([&](Machine& machine) {
    const std::size_t chunks = machine.virtual_memory.mappings_in({at, at + bytes});
    const CUresult result = unmap(machine, at, bytes);
    if (result == CUDA_SUCCESS) machine.clock.host_unmaps(chunks);
    return result;
  });
}

CUresult MemSetAccess(CUdeviceptr at,
                      std::size_t bytes,
                      const CUmemAccessDesc* access,
                      std::size_t count) {
  return call<"cuMemSetAccess">([&](Machine& machine) {
    const CUresult result = machine.virtual_memory.set_access(at, bytes, access, count);
    if (result == CUDA_SUCCESS) {
      machine.clock.host_allows(machine.virtual_memory.mappings_in({at, at + bytes}), count);
    }
    return result;
  });
}

CUresult MemGetAccess(unsigned long long* flags, const CUmemLocation* location, CUdeviceptr at) {
  return call<"cuMemGetAccess">([&](Machine& machine) {
    if (flags == nullptr || location == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (location->type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (location->id < 0 || location->id >= machine.settings.devices) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    return machine.virtual_memory.access(at, location->id, flags);
  });
}

CUresult MemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* at) {
  return call<"cuMemRetainAllocationHandle">([&](Machine& machine) {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return machine.virtual_memory.retain(reinterpret_cast<CUdeviceptr>(at), handle);
  });
}

CUresult MemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                              CUmemGenericAllocationHandle handle) {
  return call<"cuMemGetAllocationPropertiesFromHandle">([&](Machine& machine) {
    if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return machine.virtual_memory.properties(handle, properties);
  });
}

}  // namespace spillway::emulator::driver
