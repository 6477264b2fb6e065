// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/machine.h"
#include "emulator/driver/contexts.h"
#include "emulator/driver/functions.h"

#include <cstring>

namespace spillway::emulator::driver {
namespace {

/// What cuPointerGetAttribute returns for one address.
struct PointerProperties {
  CUmemorytype type;
  int device;
  Range range;
  const Pool* pool;  // null: not stream-ordered
  bool shareable;    // cuIpcGetMemHandle accepts it
};

std::optional<PointerProperties> properties_of(const Machine& machine, CUdeviceptr at) {
  const Range byte = {at, at + 1};
  if (at == UINTPTR_MAX) return std::nullopt;
  if (const Allocations::Block* block = machine.allocations.holding(byte)) {
    return PointerProperties{CU_MEMORYTYPE_DEVICE,
                             block->device,
                             {block->range.begin, block->range.begin + block->asked},
                             block->pooled ? block->pool : nullptr,
                             !block->pooled && block->pool != nullptr};
  }
  if (const auto device = machine.virtual_memory.device_of(byte, false)) {
    return PointerProperties{
        CU_MEMORYTYPE_DEVICE, *device, *machine.virtual_memory.mapping_of(at), nullptr, false};
  }
  if (const auto locked = machine.host.piece_of(byte)) {
    const int current = thread_state().device;
    return PointerProperties{
        CU_MEMORYTYPE_HOST, current == kNoDevice ? 0 : current, *locked, nullptr, false};
  }
  return std::nullopt;
}

template <typename Value>
CUresult put(void* data, Value value) {
  std::memcpy(data, &value, sizeof value);  // NOLINT(bugprone-sizeof-expression): an address too
  return CUDA_SUCCESS;
}

CUresult read(const PointerProperties& properties,
              CUpointer_attribute attribute,
              CUdeviceptr at,
              void* data) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      return put(data, context_of(properties.device));
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      return put(data, static_cast<unsigned>(properties.type));
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      return put(data, at);
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (properties.type != CU_MEMORYTYPE_HOST) return CUDA_ERROR_INVALID_VALUE;
      return put(data, at);
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      return put(data, 0U);
    case CU_POINTER_ATTRIBUTE_MAPPED:
      return put(data, 1U);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return put(data, properties.device);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return put(data, properties.shareable);
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return put(data, CUdeviceptr{properties.range.begin});
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return put(data, properties.range.bytes());
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      return put(data, properties.pool);
    default:
      return refuse("this attribute of a pointer");
  }
}

std::size_t size_of(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      return sizeof(int);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      return sizeof(bool);
    default:
      return sizeof(void*);
  }
}

}  // namespace

CUresult PointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr at) {
  return call<"cuPointerGetAttribute">([&](Machine& machine) {
    const auto properties = properties_of(machine, at);
    if (data == nullptr || !properties) return CUDA_ERROR_INVALID_VALUE;
    return read(*properties, attribute, at, data);
  });
}

CUresult PointerGetAttributes(unsigned count,
                              CUpointer_attribute* attributes,
                              void** data,
                              CUdeviceptr at) {
  return call<"cuPointerGetAttributes">([&](Machine& machine) {
    if (attributes == nullptr || data == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto properties = properties_of(machine, at);
    for (unsigned i = 0; i < count; ++i) {
      if (data[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
      // Properties that are absent, or unknown for such memory, are zero here and no error.
      std::memset(data[i], 0, size_of(attributes[i]));
      if (!properties) continue;
      const CUresult result = read(*properties, attributes[i], at, data[i]);
      if (result == CUDA_ERROR_NOT_SUPPORTED) return result;
    }
    return CUDA_SUCCESS;
  });
}

}  // namespace spillway::emulator::driver
