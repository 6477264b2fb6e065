// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

namespace spillway::operators {

/// The CUDA kernels of those c10d operators that NCCL has for device memory and gloo has not;
/// nothing for other names. Programs written for NCCL run over gloo here.
///
/// Averages and scaled sums (PREMUL_SUM): as in NCCL every rank scales its share, in the type of
/// the tensor, and the sum follows; averages of integers are divided afterwards. Several tensors in
/// one call, which gloo refuses or would read from a thread of its own: one call each. Tensors that
/// differ in size between the ranks: a broadcast or a reduction for each rank.
std::optional<c10::KernelFunction> collective_kernel(std::string_view name);

}  // namespace spillway::operators
