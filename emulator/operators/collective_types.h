// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>

namespace spillway::operators {

/// The CUDA kernel of a c10d operator that moves or reduces tensors, for every number type that
/// NCCL supports; gloo moves 8-bit types as bytes. `kernel` serves gloo's types; if it is empty,
/// PyTorch's kernel does. None for other operators.
///
/// Errors: the kernel raises TypeError for types that NCCL refuses, and NotImplementedError for
/// reductions of 8-bit floating-point numbers.
std::optional<c10::KernelFunction> for_all_types(const c10::OperatorHandle& op,
                                                 std::optional<c10::KernelFunction> kernel);

}  // namespace spillway::operators
