// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

#include <cuda.h>

#include <atomic>
#include <string_view>

namespace spillway::emulator {

/// Faults on demand: chosen calls of chosen functions fail with a chosen error and do nothing else.
///
/// "cuMemCreate:3=out_of_memory,cudaMemcpyAsync:1+=illegal_address": the third cuMemCreate, and
/// every cudaMemcpyAsync. Calls are counted from the moment of the setting. Errors are the
/// CUDA_ERROR_ names in lower case, or numbers. A runtime function calls driver functions, so that
/// a fault of the driver's function meets both.
///
/// Threads: safe.

/// Errors: kInvalidArgument with one line that names the entry and what it should be; nothing is
/// changed.
Status check_faults(std::string_view spec);
/// Replaces the faults; "" clears them. Errors: as check_faults.
Status set_faults(std::string_view spec);

extern std::atomic<bool> faults_set;
CUresult next_fault(const char* function);

/// Counts the call. CUDA_SUCCESS where it shall not fail.
inline CUresult injected(const char* function) {
  return faults_set.load(std::memory_order_relaxed) ? next_fault(function) : CUDA_SUCCESS;
}

}  // namespace spillway::emulator
