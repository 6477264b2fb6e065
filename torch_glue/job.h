// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

namespace spillway {

/// Configures a process that opens no region itself, from the environment. SPILLWAY_BUDGET or
/// SPILLWAY_OFFLOAD_RATIO, and SPILLWAY_RECOMPUTE, apply to the saved tensors of all threads, under
/// the tag "job". Spillway's heap becomes PyTorch's allocator unless SPILLWAY_ALLOCATOR is "torch".
/// Call it once before CUDA starts, in processes that have set such a variable.
/// Errors: kInvalidArgument for an invalid value, or settings that exclude each other; kNotReady if
/// CUDA has started with another allocator. Nothing is offloaded then.
Status start_job();

}  // namespace spillway
