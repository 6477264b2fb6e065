// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/machine.h"
#include "emulator/device/pool.h"
#include "emulator/device/views.h"
#include "emulator/driver/contexts.h"
#include "emulator/driver/functions.h"

namespace spillway::emulator::driver {
namespace {

CUmemoryPool handle_of(Pool& pool) {
  return reinterpret_cast<CUmemoryPool>(&pool);
}

/// `body(Machine&, Pool&)`.
template <Literal kName, typename Body>
CUresult with_pool(CUmemoryPool handle, Body&& body) {
  return call<kName>([&](Machine& machine) {
    Pool* pool = machine.allocations.find_pool(handle);
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    return static_cast<CUresult>(body(machine, *pool));
  });
}

/// `body(Machine&)` with a known device; writes the pool's handle to `pool`.
template <Literal kName, typename Body>
CUresult pool_of(CUmemoryPool* pool, CUdevice device, Body&& body) {
  return call<kName>([&](Machine& machine) {
    if (pool == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!known(machine, device)) return CUDA_ERROR_INVALID_DEVICE;
    *pool = handle_of(body(machine));
    return CUDA_SUCCESS;
  });
}

CUresult check(const Machine& machine, const CUmemPoolProps& properties) {
  if (properties.allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE) {
    return refuse("a memory pool outside a device");
  }
  if (properties.handleTypes != CU_MEM_HANDLE_TYPE_NONE) {
    return refuse("a memory pool for several processes");
  }
  return known(machine, properties.location.id) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

/// The storage of a readable amount; null for another attribute.
std::size_t* amount(Pool& pool, CUmemPool_attribute attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return &pool.reserved.now;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return &pool.reserved.peak;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return &pool.used.now;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return &pool.used.peak;
    default:
      return nullptr;
  }
}

/// The storage of a setting. Memory is released to the device as soon as its page is free, so the
/// rules of reuse and the threshold have no effect.
int* rule(Pool& pool, CUmemPool_attribute attribute) {
  const auto index = static_cast<std::size_t>(attribute);
  const bool known = attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
                     attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
  return known ? &pool.rules[index - 1] : nullptr;
}

/// A peak can be reset; no other value can be set.
CUresult reset_peak(Pool& pool, CUmemPool_attribute attribute, cuuint64_t value) {
  const bool reserved = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
  const bool known = reserved || attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH;
  if (!known || value != 0) return CUDA_ERROR_INVALID_VALUE;
  auto& bytes = reserved ? pool.reserved : pool.used;
  bytes.peak = bytes.now;
  return CUDA_SUCCESS;
}

}  // namespace

CUresult DeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return pool_of<"cuDeviceGetDefaultMemPool">(pool, device, [&](Machine& machine) -> Pool& {
    return machine.allocations.default_pool(device);
  });
}

CUresult DeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  return pool_of<"cuDeviceGetMemPool">(pool, device, [&](Machine& machine) -> Pool& {
    return machine.allocations.current_pool(device);
  });
}

CUresult DeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
  return with_pool<"cuDeviceSetMemPool">(handle, [&](Machine& machine, Pool& pool) {
    if (!known(machine, device)) return CUDA_ERROR_INVALID_DEVICE;
    if (pool.device != device) return CUDA_ERROR_INVALID_VALUE;
    machine.allocations.use_pool(pool);
    return CUDA_SUCCESS;
  });
}

CUresult MemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  return call<"cuMemPoolCreate">([&](Machine& machine) {
    if (pool == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = check(machine, *properties);
    if (result != CUDA_SUCCESS) return result;
    *pool =
        handle_of(machine.allocations.create_pool(properties->location.id, properties->maxSize));
    return CUDA_SUCCESS;
  });
}

CUresult MemPoolDestroy(CUmemoryPool handle) {
  return with_pool<"cuMemPoolDestroy">(handle, [](Machine& machine, Pool& pool) {
    if (pool.by_default) return CUDA_ERROR_INVALID_VALUE;
    bump_mapping_generation();
    machine.allocations.destroy_pool(pool);
    return CUDA_SUCCESS;
  });
}

CUresult MemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  return with_pool<"cuMemPoolGetAttribute">(handle, [&](Machine& /*machine*/, Pool& pool) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (const std::size_t* bytes = amount(pool, attribute)) {
      *static_cast<cuuint64_t*>(value) = *bytes;
    } else if (const int* setting = rule(pool, attribute)) {
      *static_cast<int*>(value) = *setting;
    } else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
      *static_cast<cuuint64_t*>(value) = pool.threshold;
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
  });
}

CUresult MemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void* value) {
  return with_pool<"cuMemPoolSetAttribute">(handle, [&](Machine& /*machine*/, Pool& pool) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (int* setting = rule(pool, attribute)) {
      *setting = *static_cast<int*>(value);
    } else if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) {
      pool.threshold = *static_cast<cuuint64_t*>(value);
    } else {
      return reset_peak(pool, attribute, *static_cast<cuuint64_t*>(value));
    }
    return CUDA_SUCCESS;
  });
}

CUresult MemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc* access, std::size_t count) {
  return with_pool<"cuMemPoolSetAccess">(handle, [&](Machine& machine, Pool& pool) {
    if (access == nullptr && count != 0) return CUDA_ERROR_INVALID_VALUE;
    auto allowed = pool.access;
    for (std::size_t i = 0; i < count; ++i) {
      if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
      const int device = access[i].location.id;
      if (!known(machine, device)) return CUDA_ERROR_INVALID_DEVICE;
      const bool own = device == pool.device;
      if (own && access[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
        return CUDA_ERROR_INVALID_VALUE;  // a device always has access to its own pool
      }
      allowed[static_cast<std::size_t>(device)] = access[i].flags;
    }
    pool.access = allowed;
    bump_mapping_generation();
    return CUDA_SUCCESS;
  });
}

CUresult MemPoolGetAccess(CUmemAccess_flags* flags, CUmemoryPool handle, CUmemLocation* location) {
  return with_pool<"cuMemPoolGetAccess">(handle, [&](Machine& machine, Pool& pool) {
    if (flags == nullptr || location == nullptr || location->type != CU_MEM_LOCATION_TYPE_DEVICE) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (!known(machine, location->id)) return CUDA_ERROR_INVALID_DEVICE;
    *flags = location->id == pool.device ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                         : pool.access[static_cast<std::size_t>(location->id)];
    return CUDA_SUCCESS;
  });
}

CUresult MemPoolTrimTo(CUmemoryPool handle, std::size_t /*keep*/) {
  return with_pool<"cuMemPoolTrimTo">(handle, [](Machine&, Pool&) { return CUDA_SUCCESS; });
}

}  // namespace spillway::emulator::driver
