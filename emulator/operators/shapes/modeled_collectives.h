// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>
#include <string_view>

namespace spillway::operators {

/// Collectives of a dry run. Those above the size that dry runs really copy (64 KiB) are not
/// executed. A separate stream, as NCCL has one per group, is busy for the time that this rank's
/// outgoing bytes take, and results are unchanged. Smaller ones are served by `smaller`, or by
/// PyTorch. None for names that are not collectives.
///
/// Ranks do not wait for one another: each assumes that it is the slowest.
std::optional<c10::KernelFunction> modeled_collective(const c10::OperatorHandle& op,
                                                      std::optional<c10::KernelFunction> smaller);

}  // namespace spillway::operators
