// SPDX-License-Identifier: Apache-2.0
#include "emulator/driver/functions.h"
#include "emulator/runtime/call.h"

#include <cstring>

namespace driver = spillway::emulator::driver;
using spillway::emulator::runtime::enter_on_device;

namespace {

/// The driver's handle of the same bytes.
template <typename To, typename From>
To as(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

}  // namespace

extern "C" {

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* at) {
  return enter_on_device<"cudaIpcGetMemHandle">([&] {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUipcMemHandle same{};
    const CUresult result = driver::IpcGetMemHandle(&same, reinterpret_cast<CUdeviceptr>(at));
    if (result == CUDA_SUCCESS) *handle = as<cudaIpcMemHandle_t>(same);
    return result;
  });
}

cudaError_t cudaIpcOpenMemHandle(void** at, cudaIpcMemHandle_t handle, unsigned flags) {
  return enter_on_device<"cudaIpcOpenMemHandle">([&] {
    return driver::IpcOpenMemHandle(
        reinterpret_cast<CUdeviceptr*>(at), as<CUipcMemHandle>(handle), flags);
  });
}

cudaError_t cudaIpcCloseMemHandle(void* at) {
  return enter_on_device<"cudaIpcCloseMemHandle">(
      [&] { return driver::IpcCloseMemHandle(reinterpret_cast<CUdeviceptr>(at)); });
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* handle, cudaEvent_t event) {
  return enter_on_device<"cudaIpcGetEventHandle">([&] {
    if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUipcEventHandle same{};
    const CUresult result = driver::IpcGetEventHandle(&same, event);
    if (result == CUDA_SUCCESS) *handle = as<cudaIpcEventHandle_t>(same);
    return result;
  });
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* event, cudaIpcEventHandle_t handle) {
  return enter_on_device<"cudaIpcOpenEventHandle">(
      [&] { return driver::IpcOpenEventHandle(event, as<CUipcEventHandle>(handle)); });
}
}
