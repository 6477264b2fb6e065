// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/operators.h"

#include <c10/core/DeviceGuard.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <dlfcn.h>

#include <exception>

namespace spillway::operators {
namespace {

using c10::CachingDeviceAllocator::TraceEntry;

template <class Function>
Function* find(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

/// The time at which a block is filled. PyTorch's allocator frees a block when it is no longer
/// used: then. Spillway's heap reuses it earlier, and makes the next owner's stream wait: at that
/// allocation.
TraceEntry::Action when() {
  const bool is_ours = c10::cuda::CUDACachingAllocator::get()->name() == "spillway";
  return is_ours ? TraceEntry::ALLOC : TraceEntry::FREE_COMPLETED;
}

/// Fills a block in its stream's order: an unordered reader then gets NaN. Called under the
/// allocator's lock.
void fill(const TraceEntry& entry) {
  static auto* const fill_in_order = find<decltype(cudaMemsetAsync)>("cudaMemsetAsync");
  static auto* const is_capturing = find<decltype(cudaStreamIsCapturing)>("cudaStreamIsCapturing");
  if (entry.action_ != when() || !fill_in_order || !is_capturing) return;
  const c10::DeviceGuard guard({c10::kCUDA, entry.device_});
  auto* stream = static_cast<cudaStream_t>(entry.stream_);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  // A graph would repeat the filling at each of its launches.
  if (is_capturing(stream, &status) != cudaSuccess || status != cudaStreamCaptureStatusNone) return;
  fill_in_order(reinterpret_cast<void*>(entry.addr_), 0xFF, entry.size_, stream);
}

}  // namespace
}  // namespace spillway::operators

extern "C" __attribute__((visibility("default"))) int spillway_operators_poison() {
  try {
    c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker(spillway::operators::fill);
    return 0;
  } catch (const std::exception&) {
    return 1;
  }
}
