// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace spillway::operators {

/// The service of each CUDA registration of PyTorch: operator name to "emulated", "body", "native"
/// or "refused".
using Coverage = std::map<std::string, const char*, std::less<>>;

/// Registers our kernel over every CUDA kernel of PyTorch's own operators, and disables cuDNN.
///
/// Threads: once per process, before CUDA operators run.
/// Ownership: the registrations stay until the process ends.
/// Errors: raises; PyTorch is then unchanged.
const Coverage& install();

/// Whether the operator handles only shapes and storages ("aten::view"), or queries.
bool touches_no_bytes(std::string_view name);

}  // namespace spillway::operators
