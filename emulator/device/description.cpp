// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/description.h"

namespace spillway::emulator {
namespace {

struct Known {
  const char* capability;
  int threads_per_multiprocessor;
  int shared_per_multiprocessor;  // KiB
};

// CUDA C++ Programming Guide 13.0, technical specifications per compute capability.
constexpr Known kKnown[] = {{"7.5", 1024, 64},
                            {"8.0", 2048, 164},
                            {"8.6", 1536, 100},
                            {"8.9", 1536, 100},
                            {"9.0", 2048, 228},
                            {"10.0", 2048, 228},
                            {"12.0", 1536, 100}};

}  // namespace

Result<Chip> chip_of(const std::string& capability) {
  for (const Known& known : kKnown) {
    if (capability == known.capability) {
      const std::size_t dot = capability.find('.');
      Chip chip;
      chip.major = std::stoi(capability.substr(0, dot));
      chip.minor = std::stoi(capability.substr(dot + 1));
      chip.threads_per_multiprocessor = known.threads_per_multiprocessor;
      chip.shared_per_multiprocessor = known.shared_per_multiprocessor << 10;
      return chip;
    }
  }
  return SPILLWAY_ERROR(Code::kInvalidArgument,
                        "SPILLWAY_EMULATE_CAPABILITY=" + capability + ": is not described");
}

int device_attribute(const Chip& chip, CUdevice_attribute attribute) {
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return chip.major;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return chip.minor;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return chip.multiprocessors;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return kThreadsPerBlock;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      return chip.threads_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      return kWarp;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return kSharedPerBlock;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return chip.shared_per_block_opt_in();
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      return chip.shared_per_multiprocessor;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      return 2;
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      return 1;
    default:
      return 0;
  }
}

}  // namespace spillway::emulator
