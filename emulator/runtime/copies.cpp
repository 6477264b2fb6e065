// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/copies.h"

#include "emulator/driver/functions.h"
#include "emulator/runtime/call.h"

namespace emu = spillway::emulator;
namespace driver = spillway::emulator::driver;
using emu::HostWait;
using emu::runtime::enter_on_device;

namespace {

/// The direction is not asked: an address tells by itself where it lies.
CUresult plain(void* to, const void* from, size_t bytes, cudaStream_t stream, HostWait wait) {
  return emu::call_on_stream<"memcpy">(stream, [&](emu::Machine& machine, emu::Stream& on) {
    return emu::copy(machine, on, emu::row(to, bytes), emu::row(from, bytes), wait);
  });
}

CUresult set(void* at, int value, size_t bytes, cudaStream_t stream, HostWait wait) {
  return emu::call_on_stream<"memset">(stream, [&](emu::Machine& machine, emu::Stream& on) {
    const auto begin = reinterpret_cast<std::uintptr_t>(at);
    return emu::fill(machine, on, begin, static_cast<unsigned>(value), 1, bytes, wait);
  });
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/) {
  return enter_on_device<"cudaMemcpy">(
      [&] { return plain(to, from, bytes, nullptr, HostWait::kAsBlocking); });
}

cudaError_t cudaMemcpyAsync(
    void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/, cudaStream_t stream) {
  return enter_on_device<"cudaMemcpyAsync">(
      [&] { return plain(to, from, bytes, stream, HostWait::kNever); });
}

cudaError_t cudaMemcpyPeerAsync(void* to,
                                int /*to_device*/,
                                const void* from,
                                int /*from_device*/,
                                size_t bytes,
                                cudaStream_t stream) {
  return enter_on_device<"cudaMemcpyPeerAsync">(
      [&] { return plain(to, from, bytes, stream, HostWait::kNever); });
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
    const auto target = reinterpret_cast<std::uintptr_t>(to);
    const auto source = reinterpret_cast<std::uintptr_t>(from);
    return emu::call_on_stream<"memcpy">(stream, [&](emu::Machine& machine, emu::Stream& on) {
      return emu::copy(machine,
                       on,
                       {target, to_pitch, width, height},
                       {source, from_pitch, width, height},
                       HostWait::kNever);
    });
  });
}

cudaError_t cudaMemset(void* at, int value, size_t bytes) {
  return enter_on_device<"cudaMemset">(
      [&] { return set(at, value, bytes, nullptr, HostWait::kAsBlocking); });
}

cudaError_t cudaMemsetAsync(void* at, int value, size_t bytes, cudaStream_t stream) {
  return enter_on_device<"cudaMemsetAsync">(
      [&] { return set(at, value, bytes, stream, HostWait::kNever); });
}
}
