// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/emulator.h"

#include <ATen/ATen.h>
#include <cuda.h>

#include <vector>

namespace spillway::operators {

/// Tells the order checker that the running operator on `stream` reads or writes the tensor's
/// bytes: row by row where a view leaves gaps, so that two interleaved views are not taken for the
/// same bytes.
///
/// Requires: `name` lives for ever.
void report_access(CUstream stream, const at::Tensor& tensor, bool write, const char* name);

/// The same ranges, for a node of a graph: added to `records`.
void record_access(std::vector<spillway_emulator_access_record>& records,
                   const at::Tensor& tensor,
                   bool write);

/// All bytes from the tensor's first to its last, gaps included; nothing where it has none.
struct Extent {
  const void* at = nullptr;
  size_t bytes = 0;
};

Extent extent_of(const at::Tensor& tensor);

}  // namespace spillway::operators
