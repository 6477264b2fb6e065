// SPDX-License-Identifier: Apache-2.0
#include "emulator/driver/contexts.h"
#include "emulator/driver/functions.h"
#include "emulator/runtime/call.h"

namespace emu = spillway::emulator;
namespace driver = spillway::emulator::driver;
using emu::runtime::enter;
using emu::runtime::enter_on_device;

namespace {

/// `body(context)` with the context of another device than the current one.
template <typename Body>
CUresult with_peer(int peer, Body&& body) {
  CUdevice ignored = 0;
  const CUresult result = driver::DeviceGet(&ignored, peer);
  if (result != CUDA_SUCCESS) return result;
  if (peer == emu::thread_state().device) return CUDA_ERROR_INVALID_DEVICE;
  return body(driver::context_of(peer));
}

}  // namespace

extern "C" {

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return enter<"cudaDeviceCanAccessPeer">(
      [&] { return driver::DeviceCanAccessPeer(can, device, peer); });
}

cudaError_t cudaDeviceGetP2PAttribute(int* value,
                                      cudaDeviceP2PAttr attribute,
                                      int device,
                                      int peer) {
  return enter<"cudaDeviceGetP2PAttribute">([&] {
    return driver::DeviceGetP2PAttribute(
        value, static_cast<CUdevice_P2PAttribute>(attribute), device, peer);
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return enter_on_device<"cudaDeviceEnablePeerAccess">([&] {
    return with_peer(peer, [&](CUcontext of) { return driver::CtxEnablePeerAccess(of, flags); });
  });
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return enter_on_device<"cudaDeviceDisablePeerAccess">([&] {
    return with_peer(peer, [](CUcontext of) { return driver::CtxDisablePeerAccess(of); });
  });
}
}
