// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/copies.h"

#include "emulator/driver/functions.h"

namespace spillway::emulator::driver {
namespace {

/// Device addresses are host addresses here, so every direction is one function.
template <Literal kName>
CUresult plain(Rows to, Rows from, CUstream stream, HostWait wait) {
  return call_on_stream<kName>(
      stream, [&](Machine& machine, Stream& on) { return copy(machine, on, to, from, wait); });
}

template <Literal kName>
CUresult set(CUdeviceptr at,
             unsigned value,
             std::size_t unit,
             std::size_t count,
             CUstream stream,
             HostWait wait) {
  return call_on_stream<kName>(stream, [&](Machine& machine, Stream& on) {
    return fill(machine, on, at, value, unit, count, wait);
  });
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

CUresult MemsetD8(CUdeviceptr at, unsigned char value, std::size_t count) {
  return set<"cuMemsetD8">(at, value, 1, count, nullptr, HostWait::kAsBlocking);
}

CUresult MemsetD8Async(CUdeviceptr at, unsigned char value, std::size_t count, CUstream stream) {
  return set<"cuMemsetD8Async">(at, value, 1, count, stream, HostWait::kNever);
}

CUresult MemsetD32Async(CUdeviceptr at, unsigned value, std::size_t count, CUstream stream) {
  if (at % 4 != 0) return CUDA_ERROR_INVALID_VALUE;
  return set<"cuMemsetD32Async">(at, value, 4, count, stream, HostWait::kNever);
}

}  // namespace spillway::emulator::driver
