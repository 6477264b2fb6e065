// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include <string>
#include <utility>
#include <vector>

namespace spillway::operators {

/// Kernels for the CPU that draw nothing into more than 1 MiB: in a dry run the weights of a model
/// that is made on the host are unused values, and memory that is not written is none. By
/// operator; where tensors are smaller, they are PyTorch's.
std::vector<std::pair<std::string, c10::KernelFunction>> host_draws();

}  // namespace spillway::operators
