// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/counts.h"

namespace spillway::emulator::runtime {

/// The body of a runtime function that only says that it is not emulated: counts, and the runtime's
/// error, kept for cudaGetLastError.
int refuse_call(Counter& calls, const char* name);

}  // namespace spillway::emulator::runtime
