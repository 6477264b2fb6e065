// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

namespace spillway::operators {

/// The CUDA kernels of c10d operators that NCCL supports on device memory and gloo does not; none
/// for other names. With them, programs written for NCCL run over gloo.
///
/// Averages and scaled sums (PREMUL_SUM): as in NCCL, every rank scales its share in the tensor's
/// type before the sum; averages of integers are divided afterwards. Several tensors in one call,
/// which gloo refuses or would read from a thread of its own: one call each. Tensors whose sizes
/// differ between the ranks: a broadcast or a reduction per rank.
std::optional<c10::KernelFunction> collective_kernel(std::string_view name);

}  // namespace spillway::operators
