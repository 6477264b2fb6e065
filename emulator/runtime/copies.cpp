// SPDX-License-Identifier: Apache-2.0
#include "emulator/driver/contexts.h"
#include "emulator/driver/functions.h"
#include "emulator/runtime/call.h"

namespace driver = spillway::emulator::driver;
using spillway::emulator::runtime::address;
using spillway::emulator::runtime::enter_on_device;

namespace {

bool known(int device) {
  CUdevice ignored = 0;
  return driver::DeviceGet(&ignored, device) == CUDA_SUCCESS;
}

// NOLINTBEGIN(bugprone-easily-swappable-parameters): in the order of cudaMemcpy2D
CUDA_MEMCPY2D rows(
    void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height) {
  // NOLINTEND(bugprone-easily-swappable-parameters)
  CUDA_MEMCPY2D what{};
  what.dstMemoryType = what.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  what.dstDevice = address(to);
  what.dstPitch = to_pitch;
  what.srcDevice = address(from);
  what.srcPitch = from_pitch;
  what.WidthInBytes = width;
  what.Height = height;
  return what;
}

}  // namespace

// The direction of a copy is ignored: an address determines its memory.
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

cudaError_t cudaMemcpyPeer(
    void* to, int to_device, const void* from, int from_device, size_t bytes) {
  return enter_on_device<"cudaMemcpyPeer">([&] {
    if (!known(to_device) || !known(from_device)) return CUDA_ERROR_INVALID_DEVICE;
    return driver::MemcpyPeer(address(to),
                              driver::context_of(to_device),
                              address(from),
                              driver::context_of(from_device),
                              bytes);
  });
}

cudaError_t cudaMemcpyPeerAsync(
    void* to, int to_device, const void* from, int from_device, size_t bytes, cudaStream_t stream) {
  return enter_on_device<"cudaMemcpyPeerAsync">([&] {
    if (!known(to_device) || !known(from_device)) return CUDA_ERROR_INVALID_DEVICE;
    return driver::MemcpyPeerAsync(address(to),
                                   driver::context_of(to_device),
                                   address(from),
                                   driver::context_of(from_device),
                                   bytes,
                                   stream);
  });
}

cudaError_t cudaMemcpy2D(void* to,
                         size_t to_pitch,
                         const void* from,
                         size_t from_pitch,
                         size_t width,
                         size_t height,
                         cudaMemcpyKind /*kind*/) {
  return enter_on_device<"cudaMemcpy2D">([&] {
    const CUDA_MEMCPY2D what = rows(to, to_pitch, from, from_pitch, width, height);
    return driver::Memcpy2D(&what);
  });
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
    const CUDA_MEMCPY2D what = rows(to, to_pitch, from, from_pitch, width, height);
    return driver::Memcpy2DAsync(&what, stream);
  });
}

cudaError_t cudaMemcpyBatchAsync(void* const* to,
                                 const void* const* from,
                                 const size_t* bytes,
                                 size_t count,
                                 cudaMemcpyAttributes* attributes,
                                 size_t* first,
                                 size_t attribute_count,
                                 cudaStream_t stream) {
  return enter_on_device<"cudaMemcpyBatchAsync">([&] {
    // The driver's function reads its arguments alone, and the structures are laid out alike.
    return driver::MemcpyBatchAsync(reinterpret_cast<CUdeviceptr*>(const_cast<void**>(to)),
                                    reinterpret_cast<CUdeviceptr*>(const_cast<const void**>(from)),
                                    const_cast<size_t*>(bytes),
                                    count,
                                    reinterpret_cast<CUmemcpyAttributes*>(attributes),
                                    first,
                                    attribute_count,
                                    stream);
  });
}

cudaError_t cudaMemset2D(void* at, size_t pitch, int value, size_t width, size_t height) {
  return enter_on_device<"cudaMemset2D">([&] {
    return driver::MemsetD2D8(address(at), pitch, static_cast<unsigned char>(value), width, height);
  });
}

cudaError_t cudaMemset2DAsync(
    void* at, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
  return enter_on_device<"cudaMemset2DAsync">([&] {
    return driver::MemsetD2D8Async(
        address(at), pitch, static_cast<unsigned char>(value), width, height, stream);
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
