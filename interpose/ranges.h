// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace spillway::interpose {

/// Makes this library what NVTX loads in this process and its children, so that ranges can be told.
/// A profiler that has that place keeps it. Call before there are threads: it changes the
/// environment.
void offer_ranges();

/// Tells the ranges of this process to two functions of `library`, from dlopen: a job's regions
/// around NVTX ranges. What is wrong, empty where nothing is.
std::string tell_ranges_to(void* library);

}  // namespace spillway::interpose
