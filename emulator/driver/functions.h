// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include <type_traits>

namespace spillway::emulator::driver {

// Each function of the list with exactly the type that its version has in CUDA's headers. They have
// no cu prefix and C++ names: nothing may find them but through the look-up.
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration cannot stand in parentheses.
#define SPILLWAY_EMULATED(name, version) std::remove_pointer_t<PFN_cu##name##_v##version> name;
#define SPILLWAY_REFUSED(name, version)
#include "emulator/driver/functions.inc"
#undef SPILLWAY_EMULATED
#undef SPILLWAY_REFUSED

/// cuMemcpyBatchAsync in the form of CUDA 12.8.
std::remove_pointer_t<PFN_cuMemcpyBatchAsync_v12080> memcpy_batch_12080;

/// A driver function ("cuMemCreate", with or without a _v2) whose ABI version is at most `version`;
/// null if there is none. With `per_thread`, or a name that ends in _ptsz or _ptds, stream 0 is the
/// thread's default stream.
void* look_up(const char* name, int version, bool per_thread = false);

}  // namespace spillway::emulator::driver
