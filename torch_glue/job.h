// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

namespace spillway {

/// Sets up a process that opens no region itself, as the environment says: SPILLWAY_BUDGET or
/// SPILLWAY_OFFLOAD_RATIO, and SPILLWAY_RECOMPUTE, for what all threads save, under the tag "job",
/// and Spillway's memory as PyTorch's unless SPILLWAY_ALLOCATOR is "torch". For processes that have
/// asked for any of it; before CUDA starts, once. Errors: kInvalidArgument for a value that cannot
/// be used or for both of the first two; kNotReady where CUDA has started with another allocator.
/// Nothing moves then.
Status start_job();

}  // namespace spillway
