// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace spillway {

/// Logs in the run log the operator that produced an offloaded tensor, and the program line that
/// saves it. Only in the first steps, because later ones are similar and a line costs microseconds.
/// Requires: RunLog::on(). The caller holds no lock that a thread with Python's lock waits for.
/// Threads: safe.
void log_source(const at::Tensor& tensor, std::uint64_t storage);

/// Returns the program line that this thread runs; "" if there is none. One per process; null:
/// none.
using LineSource = std::string (*)();
void set_line_source(LineSource source);

}  // namespace spillway
