// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <string>

namespace spillway::operators {

/// How each CUDA registration of PyTorch is served: operator name to "emulated", "body", "native"
/// or "refused".
using Coverage = std::map<std::string, const char*, std::less<>>;

/// Puts a kernel of ours over every CUDA kernel of PyTorch's own operators, and switches cuDNN off.
///
/// Threads: once per process, before CUDA operators run.
/// Ownership: the registrations stay until the process ends.
/// Errors: raises; PyTorch is then as it was.
const Coverage& install();

/// Bookkeeping of shapes and storages alone ("aten::view"), and questions about what is there.
bool touches_no_bytes(std::string_view name);

}  // namespace spillway::operators
