// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/peers.h"

#include "emulator/device/machine.h"
#include "emulator/driver/contexts.h"
#include "emulator/driver/functions.h"

namespace spillway::emulator::driver {
namespace {

/// `body(Machine&, device, peer)` for the current device and the one of `context`.
template <Literal kName, typename Body>
CUresult with_peer(CUcontext context, Body&& body) {
  return call_on_device<kName>([&](Machine& machine, int device) {
    int peer = kNoDevice;
    if (context == nullptr || !device_of(context, machine.settings.devices, &peer) ||
        peer == device) {
      return CUDA_ERROR_INVALID_CONTEXT;
    }
    return static_cast<CUresult>(body(machine, device, peer));
  });
}

}  // namespace

CUresult DeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return call<"cuDeviceCanAccessPeer">([&](Machine& machine) {
    if (can == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!known(machine, device) || !known(machine, peer)) return CUDA_ERROR_INVALID_DEVICE;
    *can = device != peer ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

CUresult DeviceGetP2PAttribute(int* value,
                               CUdevice_P2PAttribute attribute,
                               CUdevice device,
                               CUdevice peer) {
  return call<"cuDeviceGetP2PAttribute">([&](Machine& machine) {
    if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (!known(machine, device) || !known(machine, peer) || device == peer) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    switch (attribute) {
      case CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED:
      case CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED:
        *value = 1;
        return CUDA_SUCCESS;
      case CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK:
      case CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED:
      case CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED:
        *value = 0;
        return CUDA_SUCCESS;
      default:
        return CUDA_ERROR_INVALID_VALUE;
    }
  });
}

CUresult CtxEnablePeerAccess(CUcontext context, unsigned flags) {
  return with_peer<"cuCtxEnablePeerAccess">(context, [&](Machine& machine, int device, int peer) {
    return flags != 0 ? CUDA_ERROR_INVALID_VALUE : machine.peers.enable(device, peer);
  });
}

CUresult CtxDisablePeerAccess(CUcontext context) {
  return with_peer<"cuCtxDisablePeerAccess">(context, [&](Machine& machine, int device, int peer) {
    return machine.peers.disable(device, peer);
  });
}

}  // namespace spillway::emulator::driver
