// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/description.h"
#include "emulator/driver/contexts.h"
#include "emulator/driver/functions.h"
#include "emulator/runtime/call.h"
#include "emulator/torch/operators.h"

#include <cstdio>
#include <cstring>

namespace emu = spillway::emulator;
namespace driver = spillway::emulator::driver;
using emu::runtime::enter;
using emu::runtime::enter_on_device;

namespace {

/// Requires: a machine that is ready.
const emu::Settings& settings() {
  return emu::machine_if_ready()->settings;
}

/// Its number in the machine. Requires: one that the program sees.
int in_machine(int device) {
  return settings().visible[static_cast<std::size_t>(device)];
}

cudaDeviceProp describe(int device, std::size_t memory) {
  const emu::Chip& chip = settings().chip;
  cudaDeviceProp is{};
  std::snprintf(is.name, sizeof is.name, "%s", emu::kDeviceName);
  std::memset(is.uuid.bytes, 0xE0 + in_machine(device), sizeof is.uuid.bytes);
  is.totalGlobalMem = memory;
  is.major = chip.major;
  is.minor = chip.minor;
  is.multiProcessorCount = chip.multiprocessors;
  is.warpSize = emu::kWarp;
  is.maxThreadsPerBlock = emu::kThreadsPerBlock;
  is.maxThreadsPerMultiProcessor = chip.threads_per_multiprocessor;
  is.maxBlocksPerMultiProcessor = 32;
  is.maxThreadsDim[0] = is.maxThreadsDim[1] = 1024;
  is.maxThreadsDim[2] = 64;
  is.maxGridSize[0] = 2147483647;
  is.maxGridSize[1] = is.maxGridSize[2] = 65535;
  is.regsPerBlock = is.regsPerMultiprocessor = emu::kRegisters;
  is.sharedMemPerBlock = emu::kSharedPerBlock;
  is.sharedMemPerBlockOptin = static_cast<std::size_t>(chip.shared_per_block_opt_in());
  is.sharedMemPerMultiprocessor = static_cast<std::size_t>(chip.shared_per_multiprocessor);
  is.reservedSharedMemPerBlock = 1024;
  is.totalConstMem = 65536;
  is.l2CacheSize = 50 << 20;
  is.memPitch = 2147483647;
  is.textureAlignment = 512;
  is.memoryBusWidth = 6144;
  is.asyncEngineCount = 2;
  is.pciBusID = 1 + in_machine(device);
  is.canMapHostMemory = is.concurrentKernels = is.unifiedAddressing = 1;
  is.streamPrioritiesSupported = is.hostRegisterSupported = is.memoryPoolsSupported = 1;
  is.canUseHostPointerForRegisteredMem = 1;
  return is;
}

CUresult known_device(int device) {
  CUdevice ignored = 0;
  return driver::DeviceGet(&ignored, device);
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  // PyTorch's first call: installs its operators in programs where Python has not.
  const bool complete = emu::torch::install_operators();
  return enter<"cudaGetDeviceCount">(
      [&] { return complete ? driver::DeviceGetCount(count) : CUDA_ERROR_SYSTEM_NOT_READY; });
}

cudaError_t cudaGetDevice(int* device) {
  return enter<"cudaGetDevice">([&] {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const int current = emu::thread_state().device;
    *device = current == emu::kNoDevice ? 0 : current;
    return emu::runtime::start() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
  });
}

cudaError_t cudaSetDevice(int device) {
  return enter<"cudaSetDevice">([&] {
    CUcontext context = nullptr;
    const CUresult result = driver::DevicePrimaryCtxRetain(&context, device);
    return result == CUDA_SUCCESS ? driver::CtxSetCurrent(context) : result;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  return enter<"cudaDriverGetVersion">([&] { return driver::DriverGetVersion(version); });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  return enter<"cudaRuntimeGetVersion">([&] { return driver::DriverGetVersion(version); });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return enter<"cudaGetDeviceProperties">([&] {
    std::size_t memory = 0;
    if (properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = driver::DeviceTotalMem(&memory, device);
    if (result == CUDA_SUCCESS) *properties = describe(device, memory);
    return result;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return enter<"cudaDeviceGetAttribute">([&] {
    return driver::DeviceGetAttribute(value, static_cast<CUdevice_attribute>(attribute), device);
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  return enter<"cudaDeviceGetPCIBusId">([&] {
    if (id == nullptr || length < 13) return CUDA_ERROR_INVALID_VALUE;
    const CUresult result = known_device(device);
    if (result == CUDA_SUCCESS) {
      std::snprintf(id, static_cast<std::size_t>(length), "0000:%02x:00.0", in_machine(device) + 1);
    }
    return result;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return enter<"cudaDeviceGetStreamPriorityRange">([&] {
    if (least != nullptr) *least = emu::kLeastPriority;
    if (greatest != nullptr) *greatest = emu::kGreatestPriority;
    return CUDA_SUCCESS;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return enter_on_device<"cudaDeviceSynchronize">([] { return driver::CtxSynchronize(); });
}

cudaError_t cudaProfilerStart() {
  return enter<"cudaProfilerStart">([] { return CUDA_SUCCESS; });
}

cudaError_t cudaProfilerStop() {
  return enter<"cudaProfilerStop">([] { return CUDA_SUCCESS; });
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol,
                                             void** function,
                                             unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* status) {
  return enter<"cudaGetDriverEntryPointByVersion">([&] {
    CUdriverProcAddressQueryResult found{};
    const CUresult result =
        driver::GetProcAddress(symbol, function, static_cast<int>(version), flags, &found);
    if (status != nullptr) {
      *status = found == CU_GET_PROC_ADDRESS_SUCCESS ? cudaDriverEntryPointSuccess
                                                     : cudaDriverEntryPointSymbolNotFound;
    }
    // The runtime reports a missing name only in `status`.
    return result == CUDA_ERROR_NOT_FOUND && status != nullptr ? CUDA_SUCCESS : result;
  });
}
}
