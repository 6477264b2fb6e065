// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace spillway::interpose {

/// Registers this library as NVTX's injection library in this process and its children, so that
/// ranges are reported. Keeps a profiler that is already registered. Call it before there are
/// threads: it changes the environment.
void offer_ranges();

/// Reports the ranges of this process to two functions of `library`, a dlopen handle: a job's
/// regions around NVTX ranges. Returns the error; empty if there is none.
std::string forward_ranges_to(void* library);

}  // namespace spillway::interpose
