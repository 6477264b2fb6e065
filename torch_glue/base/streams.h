// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/driver/handles.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAStream.h>

namespace spillway {

inline driver::Stream stream_of(c10::cuda::CUDAStream stream) {
  return driver::Stream(stream.stream(), DeviceId{stream.device_index()});
}

/// As c10's function, without its check for kernel errors, which takes longer than the heap's
/// search for a block.
inline c10::DeviceIndex current_device() {
  c10::DeviceIndex index = -1;
  const cudaError_t error = c10::cuda::GetDevice(&index);
  if (error != cudaSuccess) C10_CUDA_CHECK(error);
  return index;
}

/// This thread's current stream of a device.
inline c10::cuda::CUDAStream current_stream(DeviceId device) {
  return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device));
}

/// Whether this thread's current stream is being captured into a graph, each replay of which draws
/// new random numbers.
inline bool capturing() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

}  // namespace spillway
