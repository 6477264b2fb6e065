// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/driver/handles.h"

#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAStream.h>

namespace spillway {

inline driver::Stream stream_of(c10::cuda::CUDAStream stream) {
  return driver::Stream(stream.stream(), DeviceId{stream.device_index()});
}

/// This thread's current stream of a device.
inline c10::cuda::CUDAStream current_stream(DeviceId device) {
  return c10::cuda::getCurrentCUDAStream(static_cast<c10::DeviceIndex>(device));
}

/// Whether what this thread's current stream is given goes into a graph, each replay of which draws
/// its random numbers anew.
inline bool capturing() {
  return c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None;
}

}  // namespace spillway
