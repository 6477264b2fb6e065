// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <ATen/core/boxing/KernelFunction.h>

namespace spillway::operators {

/// The device's kernel of _local_scalar_dense (`item`, `bool`, `float` of a tensor): PyTorch's,
/// with a counter.
c10::KernelFunction counted_item();

/// Counts a host read of an element that came from the device by a completed copy.
/// Threads: safe; the caller must hold no lock that a thread with Python's interpreter lock may
/// wait for.
/// Errors: raised when one location of the program reads the same value too often: it then waits
/// for a value that is never computed. The text names the location and the assumption to set.
void count_read(const at::Tensor& element);

}  // namespace spillway::operators
