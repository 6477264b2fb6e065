// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

namespace spillway::operators {

/// The CUDA kernel of c10d::send, recv_ or recv_any_source_; none for other names.
///
/// Gloo sends and receives host memory only. It would access device memory from a thread of its
/// own, outside the stream's order. Here the bytes pass through page-locked memory. Backends other
/// than gloo get the tensors unchanged.
///
/// Stream: a send waits on the host for the current stream. A receive is ordered after the work of
/// the current stream at the call; the current stream at `wait` is ordered after the receive.
std::optional<c10::KernelFunction> point_to_point_kernel(std::string_view name);

}  // namespace spillway::operators
