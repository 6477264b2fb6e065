// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <cuda.h>

namespace spillway::operators {

/// Tells the order checker that the running operator on `stream` reads or writes the tensor's
/// bytes: row by row where a view leaves gaps, so that two interleaved views are not taken for the
/// same bytes.
///
/// Requires: `name` lives for ever.
void report_access(CUstream stream, const at::Tensor& tensor, bool write, const char* name);

}  // namespace spillway::operators
