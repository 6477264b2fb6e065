// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/ATen_fwd.h>
#include <ATen/core/boxing/KernelFunction.h>

namespace spillway::operators {

/// The device's kernel of _local_scalar_dense (`item`, `bool`, `float` of a tensor): PyTorch's,
/// and counted.
c10::KernelFunction counted_item();

/// Counts what the host has read: an element on the host that came from the device, by a copy that
/// has ended. Threads: safe; the caller must hold no lock that a thread with Python's interpreter
/// lock may want. Errors: an error that says where and what to assume, when one place of the
/// program has read the same value so often that it waits for another: nothing computes one.
void count_read(const at::Tensor& element);

}  // namespace spillway::operators
