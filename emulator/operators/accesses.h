// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/emulator.h"

#include <ATen/ATen.h>
#include <ATen/core/function_schema.h>
#include <cuda.h>

#include <vector>

namespace spillway::operators {

/// The arguments that the operator writes: those marked in its schema, and those it writes without
/// a mark (the running statistics of batch norms).
std::vector<bool> written_arguments(const c10::FunctionSchema& schema);

/// Reports to the order checker that the running operator on `stream` reads or writes exactly the
/// bytes of the tensor. Interleaved views have no common bytes.
///
/// Requires: `name` outlives the process.
void report_access(CUstream stream, const at::Tensor& tensor, bool write, const char* name);

/// The same bytes, for a node of a graph: added to `records`.
void record_access(std::vector<spillway_emulator_view>& records,
                   const at::Tensor& tensor,
                   bool write);

/// All bytes from the tensor's first to its last, including gaps; empty if it has none.
struct Extent {
  const void* at = nullptr;
  size_t bytes = 0;
};

Extent extent_of(const at::Tensor& tensor);
/// Likewise for the calling thread and a tensor on the CPU. Only page-locked memory counts.
void report_host_access(const at::Tensor& tensor, bool write, const char* name);

}  // namespace spillway::operators
