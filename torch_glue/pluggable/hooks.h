// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <memory>

namespace spillway {

/// Gives PyTorch's pluggable allocator over libspillway.so all the functions that it can have, and
/// serves its memory from here: pools, out-of-memory observers and the profiler then work.
/// Throws TypeError where it is another kind of allocator. CurrentOp it twice changes nothing.
void install_pluggable_hooks(
    const std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator>& allocator);

/// Whether PyTorch's CUDA memory is Spillway's: by use_allocator(), or by a pluggable allocator
/// over libspillway.so, one without our functions once it has served memory. Threads: safe.
bool serves_torch();

}  // namespace spillway
