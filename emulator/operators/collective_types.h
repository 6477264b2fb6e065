// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>

namespace spillway::operators {

/// The CUDA kernel of a c10d operator that moves or reduces tensors, for every type of number that
/// NCCL takes: gloo moves those of 8 bits as bytes. `kernel` serves the types that gloo has, or
/// what PyTorch has where there is none. Nothing for other operators.
///
/// Errors: the kernel raises TypeError for types that NCCL refuses, and NotImplementedError for
/// reductions of 8-bit floating point numbers.
std::optional<c10::KernelFunction> for_all_types(const c10::OperatorHandle& op,
                                                 std::optional<c10::KernelFunction> kernel);

}  // namespace spillway::operators
