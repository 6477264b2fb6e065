// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

#include <cuda.h>

#include <atomic>
#include <string_view>

namespace spillway::emulator {

/// Fault injection: selected calls of selected functions fail with a given error and have no other
/// effect.
///
/// "cuMemCreate:3=out_of_memory,cudaMemcpyAsync:1+=illegal_address": the third cuMemCreate, and
/// every cudaMemcpyAsync. Calls are counted from the setting on. Errors are the CUDA_ERROR_ names
/// in lower case, or numbers. A runtime function calls driver functions, so a fault of the driver
/// function affects both.
///
/// Threads: safe.

/// Errors: kInvalidArgument with one line that names the entry and the expected form; nothing has
/// changed.
Status check_faults(std::string_view spec);
/// Replaces the faults; "" clears them. Errors: as check_faults.
Status set_faults(std::string_view spec);

extern std::atomic<bool> faults_set;
CUresult next_fault(const char* function);

/// Counts the call. CUDA_SUCCESS if it must not fail.
inline CUresult injected(const char* function) {
  return faults_set.load(std::memory_order_relaxed) ? next_fault(function) : CUDA_SUCCESS;
}

}  // namespace spillway::emulator
