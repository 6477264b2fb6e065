// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

#include <string_view>

namespace spillway {

/// Opens regions around a program's NVTX ranges: "mlp=0.8,attn*=0.5" offloads that ratio in a range
/// whose name matches a pattern. The pattern is the region's tag, with * and ? as in file names. It
/// may also match the part of a name after a dot. The first matching pattern applies. Call it once,
/// before the program's first range.
/// Requires: a value that SPILLWAY_TAG_RATIO accepts.
Status set_named_regions(std::string_view ratios);

/// Begins or ends a range on this thread, in the stack of its domain.
void range_pushed(const void* domain, const char* name);
void range_popped(const void* domain);

/// Configures a process that opens no region itself, from the environment. SPILLWAY_BUDGET or
/// SPILLWAY_OFFLOAD_RATIO, and SPILLWAY_RECOMPUTE, apply to the saved tensors of all threads, under
/// the tag "job". Spillway's heap becomes PyTorch's allocator unless SPILLWAY_ALLOCATOR is "torch".
/// Call it once before CUDA starts, in processes that have set such a variable.
/// Errors: kInvalidArgument for an invalid value, or settings that exclude each other; kNotReady if
/// CUDA has started with another allocator. Nothing is offloaded then.
Status start_job();

}  // namespace spillway
