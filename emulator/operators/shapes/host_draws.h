// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include <string>
#include <utility>
#include <vector>

namespace spillway::operators {

/// CPU kernels that draw no random numbers into tensors above 1 MiB. In a dry run the values of a
/// model's weights on the host are unused, and unwritten memory occupies none. By operator; smaller
/// tensors get PyTorch's.
std::vector<std::pair<std::string, c10::KernelFunction>> host_draws();

}  // namespace spillway::operators
