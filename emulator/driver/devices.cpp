// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/description.h"
#include "emulator/device/errors.h"
#include "emulator/device/machine.h"
#include "emulator/driver/functions.h"

#include <cstdio>

namespace spillway::emulator::driver {
namespace {

CUresult text_of(int code, const char** out, const char* text) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = error_text(code) == nullptr ? nullptr : text;
  return *out == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

}  // namespace

CUresult Init(unsigned flags) {
  counter<"cuInit">.add();
  Machine* machine = machine_if_ready();
  if (machine == nullptr) return CUDA_ERROR_NOT_INITIALIZED;
  if (const CUresult fault = injected("cuInit"); fault != CUDA_SUCCESS) return fault;
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  if (machine->settings.devices == 0) return CUDA_ERROR_NO_DEVICE;
  machine->driver_started.store(true);
  return CUDA_SUCCESS;
}

CUresult DriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = kCudaVersion;
  return CUDA_SUCCESS;
}

CUresult GetErrorName(CUresult error, const char** name) {
  const ErrorText* known = error_text(error);
  return text_of(error, name, known == nullptr ? nullptr : known->driver_name);
}

CUresult GetErrorString(CUresult error, const char** text) {
  return text_of(error, text, explain_error(error));
}

CUresult GetProcAddress(const char* name,
                        void** function,
                        int version,
                        cuuint64_t flags,
                        CUdriverProcAddressQueryResult* found) {
  if (name == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *function = look_up(name, version, (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0);
  if (found != nullptr) {
    *found =
        *function == nullptr ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND : CU_GET_PROC_ADDRESS_SUCCESS;
  }
  return *function == nullptr ? CUDA_ERROR_NOT_FOUND : CUDA_SUCCESS;
}

CUresult DeviceGet(CUdevice* device, int ordinal) {
  return call<"cuDeviceGet">([&](Machine& machine) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (ordinal < 0 || ordinal >= machine.settings.devices) return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult DeviceGetCount(int* count) {
  return call<"cuDeviceGetCount">([&](Machine& machine) {
    if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *count = machine.settings.devices;
    return CUDA_SUCCESS;
  });
}

CUresult DeviceGetName(char* name, int length, CUdevice device) {
  return call<"cuDeviceGetName">([&](Machine& machine) {
    if (name == nullptr || length <= 0) return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || device >= machine.settings.devices) return CUDA_ERROR_INVALID_DEVICE;
    std::snprintf(name, static_cast<std::size_t>(length), "%s", kDeviceName);
    return CUDA_SUCCESS;
  });
}

CUresult DeviceTotalMem(std::size_t* bytes, CUdevice device) {
  return call<"cuDeviceTotalMem">([&](Machine& machine) {
    if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || device >= machine.settings.devices) return CUDA_ERROR_INVALID_DEVICE;
    *bytes = machine.capacity.total();
    return CUDA_SUCCESS;
  });
}

CUresult DeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return call<"cuDeviceGetAttribute">([&](Machine& machine) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || device >= machine.settings.devices) return CUDA_ERROR_INVALID_DEVICE;
    *value = device_attribute(machine.settings.chip, attribute);
    return CUDA_SUCCESS;
  });
}

}  // namespace spillway::emulator::driver
