// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <memory>

namespace spillway {

/// Sets all optional functions of PyTorch's pluggable allocator over libspillway.so, and serves its
/// memory from here. Pools, out-of-memory observers and the profiler then work. Throws TypeError
/// for another kind of allocator. A second call has no effect.
void install_pluggable_hooks(
    const std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator>& allocator);

/// Whether Spillway's heap allocates PyTorch's CUDA memory: after use_allocator(), or by a
/// pluggable allocator over libspillway.so. One without our functions counts once it has allocated
/// memory.
/// Threads: safe.
bool serves_torch();

}  // namespace spillway
