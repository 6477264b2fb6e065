// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// The C interface of libspillway_preload.so; found by name in the process.
extern "C" {

/// How often the process called a function that the preload library observes ("cudaMalloc"), or,
/// with "_bytes" behind the name, how many bytes those calls asked for. Calls that CUDA makes
/// inside a call are not counted. 0 for an unknown name, in a forked child's own calls, and under
/// SPILLWAY_DISABLE=1. Threads: safe.
std::uint64_t spillway_preload_count(const char* what);
}
