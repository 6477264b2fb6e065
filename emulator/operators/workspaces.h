// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>

#include <string_view>

namespace spillway::operators {

/// True for the matrix products that a GPU gives to cuBLAS.
bool uses_cublas(std::string_view name);

/// Gives the calling thread's first matrix product on `stream` the workspace that cuBLAS gets from
/// PyTorch: getChosenWorkspaceSize() bytes of the current CUDA allocator, which stay until
/// torch._C._cuda_clearCublasWorkspaces().
///
/// Stream: `stream` is the current one of the current device.
/// Errors: raises where the allocator is out of memory.
void keep_cublas_workspace(CUstream stream);

}  // namespace spillway::operators
