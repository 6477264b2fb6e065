// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/copies.h"

#include "emulator/driver/contexts.h"
#include "emulator/driver/functions.h"

#include <cstdint>
#include <optional>

namespace spillway::emulator::driver {
namespace {

/// Device addresses are host addresses here, so every direction is one function.
template <Literal kName>
CUresult plain(Rows to, Rows from, CUstream stream, HostWait wait) {
  return call_on_stream<kName>(
      stream, [&](Machine& machine, Stream& on) { return copy(machine, on, to, from, wait); });
}

/// Rows of `width` units, `pitch` bytes apart.
template <Literal kName>
CUresult set_rows(CUdeviceptr at,
                  std::size_t pitch,
                  std::size_t width,
                  std::size_t height,
                  Pattern pattern,
                  CUstream stream,
                  HostWait wait) {
  return call_on_stream<kName>(stream, [&](Machine& machine, Stream& on) {
    std::size_t bytes = 0;
    if (__builtin_mul_overflow(width, pattern.unit, &bytes) || (height > 1 && bytes > pitch)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return fill(machine, on, {at, pitch, bytes, height}, pattern, wait);
  });
}

template <Literal kName>
CUresult set(CUdeviceptr at, std::size_t count, Pattern pattern, CUstream stream, HostWait wait) {
  return set_rows<kName>(at, 0, count, 1, pattern, stream, wait);
}

/// One side of a 2D copy. Nothing for arrays and for a width beyond the pitch.
struct Side {
  CUmemorytype type;
  const void* host;
  CUdeviceptr device;
  std::size_t pitch;
  std::size_t x;
  std::size_t y;
};

std::optional<Rows> rows_of(const Side& side, std::size_t width, std::size_t height) {
  std::size_t offset = 0;
  std::uintptr_t at = side.device;
  if (side.type == CU_MEMORYTYPE_HOST) at = reinterpret_cast<std::uintptr_t>(side.host);
  if (side.type == CU_MEMORYTYPE_ARRAY || width > side.pitch ||
      __builtin_mul_overflow(side.y, side.pitch, &offset) ||
      __builtin_add_overflow(offset, side.x, &offset) || __builtin_add_overflow(at, offset, &at)) {
    return std::nullopt;
  }
  return Rows{at, side.pitch, width, height};
}

template <Literal kName>
CUresult copy_2d(const CUDA_MEMCPY2D* what, CUstream stream, HostWait wait) {
  if (what == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const auto to = rows_of({what->dstMemoryType,
                           what->dstHost,
                           what->dstDevice,
                           what->dstPitch,
                           what->dstXInBytes,
                           what->dstY},
                          what->WidthInBytes,
                          what->Height);
  const auto from = rows_of({what->srcMemoryType,
                             what->srcHost,
                             what->srcDevice,
                             what->srcPitch,
                             what->srcXInBytes,
                             what->srcY},
                            what->WidthInBytes,
                            what->Height);
  if (!to || !from) return CUDA_ERROR_INVALID_VALUE;
  return plain<kName>(*to, *from, stream, wait);
}

/// A copy between devices, each named by its context.
template <Literal kName>
CUresult copy_peer(Rows to,
                   CUcontext to_context,
                   Rows from,
                   CUcontext from_context,
                   CUstream stream,
                   HostWait wait) {
  return call_on_stream<kName>(stream, [&](Machine& machine, Stream& on) {
    for (CUcontext context : {to_context, from_context}) {
      int device = kNoDevice;
      if (context == nullptr || !device_of(context, machine.settings.devices, &device)) {
        return CUDA_ERROR_INVALID_CONTEXT;
      }
    }
    return copy(machine, on, to, from, wait);
  });
}

/// Whether every copy has attributes, and only known ones.
bool known_attributes(const CUmemcpyAttributes* attributes,
                      const std::size_t* first,
                      std::size_t count,
                      std::size_t copies) {
  if (attributes == nullptr || first == nullptr || count == 0 || count > copies || first[0] != 0) {
    return false;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const auto order = attributes[i].srcAccessOrder;
    if (order < CU_MEMCPY_SRC_ACCESS_ORDER_STREAM || order > CU_MEMCPY_SRC_ACCESS_ORDER_ANY ||
        first[i] >= copies || (i > 0 && first[i] <= first[i - 1])) {
      return false;
    }
  }
  return true;
}

}  // namespace

CUresult Memcpy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return plain<"cuMemcpy">(row(to, bytes), row(from, bytes), nullptr, HostWait::kAsBlocking);
}

CUresult MemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return plain<"cuMemcpyAsync">(row(to, bytes), row(from, bytes), stream, HostWait::kNever);
}

CUresult MemcpyHtoD(CUdeviceptr to, const void* from, std::size_t bytes) {
  return plain<"cuMemcpyHtoD">(row(to, bytes), row(from, bytes), nullptr, HostWait::kAsBlocking);
}

CUresult MemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) {
  return plain<"cuMemcpyDtoH">(row(to, bytes), row(from, bytes), nullptr, HostWait::kAsBlocking);
}

CUresult MemcpyDtoD(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) {
  return plain<"cuMemcpyDtoD">(row(to, bytes), row(from, bytes), nullptr, HostWait::kAsBlocking);
}

CUresult MemcpyHtoDAsync(CUdeviceptr to, const void* from, std::size_t bytes, CUstream stream) {
  return plain<"cuMemcpyHtoDAsync">(row(to, bytes), row(from, bytes), stream, HostWait::kNever);
}

CUresult MemcpyDtoHAsync(void* to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return plain<"cuMemcpyDtoHAsync">(row(to, bytes), row(from, bytes), stream, HostWait::kNever);
}

CUresult MemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, CUstream stream) {
  return plain<"cuMemcpyDtoDAsync">(row(to, bytes), row(from, bytes), stream, HostWait::kNever);
}

CUresult Memcpy2D(const CUDA_MEMCPY2D* what) {
  return copy_2d<"cuMemcpy2D">(what, nullptr, HostWait::kAsBlocking);
}

CUresult Memcpy2DUnaligned(const CUDA_MEMCPY2D* what) {
  return copy_2d<"cuMemcpy2D">(what, nullptr, HostWait::kAsBlocking);
}

CUresult Memcpy2DAsync(const CUDA_MEMCPY2D* what, CUstream stream) {
  return copy_2d<"cuMemcpy2DAsync">(what, stream, HostWait::kNever);
}

CUresult MemcpyPeer(CUdeviceptr to,
                    CUcontext to_context,
                    CUdeviceptr from,
                    CUcontext from_context,
                    std::size_t bytes) {
  return copy_peer<"cuMemcpyPeer">(
      row(to, bytes), to_context, row(from, bytes), from_context, nullptr, HostWait::kAsBlocking);
}

// NOLINTNEXTLINE(readability-function-size): the driver's own
CUresult MemcpyPeerAsync(CUdeviceptr to,
                         CUcontext to_context,
                         CUdeviceptr from,
                         CUcontext from_context,
                         std::size_t bytes,
                         CUstream stream) {
  return copy_peer<"cuMemcpyPeerAsync">(
      row(to, bytes), to_context, row(from, bytes), from_context, stream, HostWait::kNever);
}

// NOLINTNEXTLINE(readability-function-size): the driver's own
CUresult MemcpyBatchAsync(CUdeviceptr* to,
                          CUdeviceptr* from,
                          std::size_t* bytes,
                          std::size_t count,
                          CUmemcpyAttributes* attributes,
                          std::size_t* first,
                          std::size_t attribute_count,
                          CUstream stream) {
  return call_on_stream<"cuMemcpyBatchAsync">(stream, [&](Machine& machine, Stream& on) {
    if (on.legacy || to == nullptr || from == nullptr || bytes == nullptr || count == 0 ||
        // NOLINTNEXTLINE(readability-suspicious-call-argument): of attributes, then of copies
        !known_attributes(attributes, first, attribute_count, count)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::vector<BatchedCopy> copies;
    for (std::size_t i = 0; i < count; ++i)
      copies.push_back({to[i], from[i], bytes[i]});
    return copy_batch(machine, on, copies);
  });
}

// The older ABI also reports the failed copy: SIZE_MAX if it is none of them.
CUresult memcpy_batch_12080(CUdeviceptr* to,
                            CUdeviceptr* from,
                            std::size_t* bytes,
                            std::size_t count,
                            CUmemcpyAttributes* attributes,
                            std::size_t* first,
                            std::size_t attribute_count,
                            std::size_t* failed,
                            CUstream stream) {
  const CUresult result =
      MemcpyBatchAsync(to, from, bytes, count, attributes, first, attribute_count, stream);
  if (result != CUDA_SUCCESS && failed != nullptr) *failed = SIZE_MAX;
  return result;
}

CUresult MemsetD8(CUdeviceptr at, unsigned char value, std::size_t count) {
  return set<"cuMemsetD8">(at, count, {value, 1}, nullptr, HostWait::kAsBlocking);
}

CUresult MemsetD16(CUdeviceptr at, unsigned short value, std::size_t count) {
  return set<"cuMemsetD16">(at, count, {value, 2}, nullptr, HostWait::kAsBlocking);
}

CUresult MemsetD32(CUdeviceptr at, unsigned value, std::size_t count) {
  return set<"cuMemsetD32">(at, count, {value, 4}, nullptr, HostWait::kAsBlocking);
}

CUresult MemsetD8Async(CUdeviceptr at, unsigned char value, std::size_t count, CUstream stream) {
  return set<"cuMemsetD8Async">(at, count, {value, 1}, stream, HostWait::kNever);
}

CUresult MemsetD16Async(CUdeviceptr at, unsigned short value, std::size_t count, CUstream stream) {
  return set<"cuMemsetD16Async">(at, count, {value, 2}, stream, HostWait::kNever);
}

CUresult MemsetD32Async(CUdeviceptr at, unsigned value, std::size_t count, CUstream stream) {
  return set<"cuMemsetD32Async">(at, count, {value, 4}, stream, HostWait::kNever);
}

CUresult MemsetD2D8(
    CUdeviceptr at, std::size_t pitch, unsigned char value, std::size_t width, std::size_t height) {
  return set_rows<"cuMemsetD2D8">(
      at, pitch, width, height, {value, 1}, nullptr, HostWait::kAsBlocking);
}

CUresult MemsetD2D8Async(CUdeviceptr at,
                         std::size_t pitch,
                         unsigned char value,
                         std::size_t width,
                         std::size_t height,
                         CUstream stream) {
  return set_rows<"cuMemsetD2D8Async">(
      at, pitch, width, height, {value, 1}, stream, HostWait::kNever);
}

CUresult MemsetD2D16(CUdeviceptr at,
                     std::size_t pitch,
                     unsigned short value,
                     std::size_t width,
                     std::size_t height) {
  return set_rows<"cuMemsetD2D16">(
      at, pitch, width, height, {value, 2}, nullptr, HostWait::kAsBlocking);
}

CUresult MemsetD2D16Async(CUdeviceptr at,
                          std::size_t pitch,
                          unsigned short value,
                          std::size_t width,
                          std::size_t height,
                          CUstream stream) {
  return set_rows<"cuMemsetD2D16Async">(
      at, pitch, width, height, {value, 2}, stream, HostWait::kNever);
}

CUresult MemsetD2D32(
    CUdeviceptr at, std::size_t pitch, unsigned value, std::size_t width, std::size_t height) {
  return set_rows<"cuMemsetD2D32">(
      at, pitch, width, height, {value, 4}, nullptr, HostWait::kAsBlocking);
}

CUresult MemsetD2D32Async(CUdeviceptr at,
                          std::size_t pitch,
                          unsigned value,
                          std::size_t width,
                          std::size_t height,
                          CUstream stream) {
  return set_rows<"cuMemsetD2D32Async">(
      at, pitch, width, height, {value, 4}, stream, HostWait::kNever);
}

}  // namespace spillway::emulator::driver
