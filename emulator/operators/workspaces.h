// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Allocator.h>
#include <cuda.h>

#include <string_view>

namespace spillway::operators {

/// True for the matrix products that a GPU gives to cuBLAS.
bool uses_cublas(std::string_view name);

/// Gives a matrix product on `stream` the workspace that cuBLAS gets from PyTorch:
/// getChosenWorkspaceSize() bytes of the current CUDA allocator. They are the caller's until the
/// product is launched; empty where PyTorch keeps workspaces, from the calling thread's first
/// product on until torch._C._cuda_clearCublasWorkspaces().
///
/// Stream: `stream` is the current one of the current device.
/// Errors: raises where the allocator is out of memory.
[[nodiscard]] at::DataPtr cublas_workspace(CUstream stream);

}  // namespace spillway::operators
