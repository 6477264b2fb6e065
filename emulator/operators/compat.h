// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/core/Allocator.h>
#include <torch/version.h>

#include <cstddef>
#include <type_traits>
#include <utility>

namespace at::cuda {
// Every version declares it, and 2.12 does not export it.
[[gnu::weak]] size_t getChosenWorkspaceSize();
}  // namespace at::cuda

/// All code of the operators that depends on the torch version. A new minor version is ported here.
namespace spillway::operators::compat {

/// Whether cuBLAS's workspaces persist, one per handle and stream. From 2.15 on that is optional
/// (TORCH_CUBLAS_WORKSPACE_CACHE=1); otherwise each product allocates and frees one.
inline bool workspaces_stay() {
#if TORCH_VERSION_MINOR >= 15
  return at::cuda::isCUDABlasWorkspaceCachingEnabled();
#else
  return true;
#endif
}

/// The size of one cuBLAS workspace. cuBLASLt uses the same one, so its size is the same.
inline std::size_t workspace_bytes() {
  if (at::cuda::getChosenWorkspaceSize != nullptr) return at::cuda::getChosenWorkspaceSize();
  return at::cuda::getCUDABlasLtWorkspaceSize();
}

/// An entry of PyTorch's table of workspaces: the memory, in later versions with its size.
using KeptWorkspace = decltype(at::cuda::WorkspaceMapWithMutex::map)::mapped_type;

template <typename Kept = KeptWorkspace>
Kept kept_workspace(at::DataPtr memory, std::size_t bytes) {
  if constexpr (std::is_same_v<Kept, at::DataPtr>) {
    static_cast<void>(bytes);
    return memory;
  } else {
    return Kept(std::move(memory), bytes);
  }
}

}  // namespace spillway::operators::compat
