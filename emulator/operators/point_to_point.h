// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

namespace spillway::operators {

/// The CUDA kernel of c10d::send, recv_ or recv_any_source_; nothing for other names.
///
/// Gloo sends and receives host memory alone: given device memory it would read and write it from a
/// thread of its own, out of the stream's order. Here the bytes travel through page-locked memory.
/// Backends other than gloo get the tensors as they are.
///
/// Stream: a send waits on the host for the current stream; a receive comes after what the current
/// stream held at the call, and the stream that is current at `wait` comes after the receive.
std::optional<c10::KernelFunction> point_to_point_kernel(std::string_view name);

}  // namespace spillway::operators
