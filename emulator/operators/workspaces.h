// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Allocator.h>
#include <cuda.h>

#include <string_view>

namespace spillway::operators {

/// True for matrix products that run in cuBLAS on a GPU.
bool uses_cublas(std::string_view name);

/// Allocates the cuBLAS workspace of a matrix product on `stream`, as PyTorch does:
/// getChosenWorkspaceSize() bytes of the current CUDA allocator. The caller owns it until the
/// product is launched. Empty if PyTorch keeps workspaces, from the calling thread's first product
/// on until torch._C._cuda_clearCublasWorkspaces().
///
/// Stream: `stream` is the current one of the current device.
/// Errors: raises if the allocator is out of memory.
[[nodiscard]] at::DataPtr cublas_workspace(CUstream stream);

}  // namespace spillway::operators
