// SPDX-License-Identifier: Apache-2.0
#include "emulator/driver/contexts.h"

#include "emulator/driver/functions.h"

namespace spillway::emulator::driver {
namespace {

constexpr std::size_t kMaxDevices = 8;
char handles[kMaxDevices];  // their addresses are the handles

}  // namespace

bool known(const Machine& machine, CUdevice device) {
  return device >= 0 && device < machine.settings.devices;
}

CUcontext context_of(int device) {
  return device == kNoDevice ? nullptr : reinterpret_cast<CUcontext>(&handles[device]);
}

bool device_of(CUcontext context, int devices, int* device) {
  for (int each = kNoDevice; each < devices; ++each) {
    if (context_of(each) != context) continue;
    *device = each;
    return true;
  }
  return false;
}

CUresult DevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return call<"cuDevicePrimaryCtxRetain">([&](Machine& machine) {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!known(machine, device)) return CUDA_ERROR_INVALID_DEVICE;
    machine.active[static_cast<std::size_t>(device)] = true;
    *context = context_of(device);
    return CUDA_SUCCESS;
  });
}

CUresult DevicePrimaryCtxRelease(CUdevice device) {
  return call<"cuDevicePrimaryCtxRelease">([&](Machine& machine) {
    return known(machine, device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
  });
}

// Succeeds after a sticky error too: PyTorch calls it while it handles that error.
CUresult DevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  counter<"cuDevicePrimaryCtxGetState">.add();
  Machine* machine = machine_if_ready();
  if (machine == nullptr || !machine->driver_started.load()) return CUDA_ERROR_NOT_INITIALIZED;
  if (thread_state().in_host_function) return CUDA_ERROR_NOT_PERMITTED;
  if (const CUresult fault = injected("cuDevicePrimaryCtxGetState"); fault != CUDA_SUCCESS) {
    return machine->fail(fault);
  }
  if (flags == nullptr || active == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!known(*machine, device)) return CUDA_ERROR_INVALID_DEVICE;
  *flags = 0;
  *active = machine->active[static_cast<std::size_t>(device)] ? 1 : 0;
  return CUDA_SUCCESS;
}

CUresult CtxPushCurrent(CUcontext context) {
  return call<"cuCtxPushCurrent">([&](Machine& machine) {
    ThreadState& state = thread_state();
    int device = kNoDevice;
    if (context == nullptr || !device_of(context, machine.settings.devices, &device)) {
      return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (state.depth == state.pushed.size()) return CUDA_ERROR_INVALID_VALUE;
    state.pushed[state.depth++] = state.device;
    state.device = device;
    return CUDA_SUCCESS;
  });
}

CUresult CtxPopCurrent(CUcontext* context) {
  return call_on_device<"cuCtxPopCurrent">([&](Machine& /*machine*/, int device) {
    ThreadState& state = thread_state();
    if (context != nullptr) *context = context_of(device);
    state.device = state.depth == 0 ? kNoDevice : state.pushed[--state.depth];
    return CUDA_SUCCESS;
  });
}

CUresult CtxSetCurrent(CUcontext context) {
  return call<"cuCtxSetCurrent">([&](Machine& machine) {
    int device = kNoDevice;
    if (!device_of(context, machine.settings.devices, &device)) return CUDA_ERROR_INVALID_CONTEXT;
    thread_state().device = device;
    return CUDA_SUCCESS;
  });
}

CUresult CtxGetCurrent(CUcontext* context) {
  return call<"cuCtxGetCurrent">([&](Machine& /*machine*/) {
    if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *context = context_of(thread_state().device);
    return CUDA_SUCCESS;
  });
}

CUresult CtxGetDevice(CUdevice* device) {
  return call_on_device<"cuCtxGetDevice">([&](Machine& /*machine*/, int current) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = current;
    return CUDA_SUCCESS;
  });
}

CUresult CtxSynchronize() {
  return call_on_device<"cuCtxSynchronize">([](Machine& machine, int device) {
    const CUresult captured = machine.captures.check_device(device);
    if (captured != CUDA_SUCCESS) return captured;
    host_syncs().add();
    machine.streams.synchronize_device(device);
    return machine.sticky.load();
  });
}

}  // namespace spillway::emulator::driver
