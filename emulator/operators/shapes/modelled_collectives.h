// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string_view>

namespace spillway::operators {

/// Collectives of a dry run. What is larger than what dry runs copy for true (64 KiB) does not
/// happen: a stream of its own, as NCCL has one for each group, is busy for as long as the bytes
/// that leave this rank take, and results hold what they held. Smaller ones are `smaller`'s;
/// without one, PyTorch's. Nothing for names that are no collectives.
///
/// Ranks do not wait for one another: each takes itself for the slowest.
std::optional<c10::KernelFunction> modelled_collective(const c10::OperatorHandle& op,
                                                       std::optional<c10::KernelFunction> smaller);

}  // namespace spillway::operators
