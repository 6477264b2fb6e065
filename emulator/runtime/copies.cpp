// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/copies.h"

#include "emulator/driver/functions.h"
#include "emulator/runtime/call.h"

namespace emu = spillway::emulator;
namespace driver = spillway::emulator::driver;
using emu::runtime::enter_on_device;

namespace {

CUdeviceptr address(const void* at) {
  return reinterpret_cast<CUdeviceptr>(at);
}

}  // namespace

// The direction of a copy is not asked: an address tells by itself where it lies.
extern "C" {

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/) {
  return enter_on_device<"cudaMemcpy">(
      [&] { return driver::Memcpy(address(to), address(from), bytes); });
}

cudaError_t cudaMemcpyAsync(
    void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/, cudaStream_t stream) {
  return enter_on_device<"cudaMemcpyAsync">(
      [&] { return driver::MemcpyAsync(address(to), address(from), bytes, stream); });
}

cudaError_t cudaMemcpyPeerAsync(void* to,
                                int /*to_device*/,
                                const void* from,
                                int /*from_device*/,
                                size_t bytes,
                                cudaStream_t stream) {
  return enter_on_device<"cudaMemcpyPeerAsync">(
      [&] { return driver::MemcpyAsync(address(to), address(from), bytes, stream); });
}

cudaError_t cudaMemcpy2DAsync(void* to,
                              size_t to_pitch,
                              const void* from,
                              size_t from_pitch,
                              size_t width,
                              size_t height,
                              cudaMemcpyKind /*kind*/,
                              cudaStream_t stream) {
  return enter_on_device<"cudaMemcpy2DAsync">([&] {
    if (width > to_pitch || width > from_pitch) return CUDA_ERROR_INVALID_VALUE;
    return emu::call_on_stream<"cuMemcpy2DAsync">(
        stream, [&](emu::Machine& machine, emu::Stream& on) {
          return emu::copy(machine,
                           on,
                           {address(to), to_pitch, width, height},
                           {address(from), from_pitch, width, height},
                           emu::HostWait::kNever);
        });
  });
}

cudaError_t cudaMemset(void* at, int value, size_t bytes) {
  return enter_on_device<"cudaMemset">(
      [&] { return driver::MemsetD8(address(at), static_cast<unsigned char>(value), bytes); });
}

cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t stream) {
  return enter_on_device<"cudaMemsetAsync">([&] {
    return driver::MemsetD8Async(address(at), static_cast<unsigned char>(value), bytes, stream);
  });
}
}
