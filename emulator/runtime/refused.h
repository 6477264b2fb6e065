// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/counts.h"

namespace spillway::emulator::runtime {

/// The body of a runtime function that is not emulated: counts, and returns the runtime's error,
/// stored for cudaGetLastError.
int refuse_call(Counter& calls, const char* name);

}  // namespace spillway::emulator::runtime
