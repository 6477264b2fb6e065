// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/machine.h"

namespace spillway::emulator {

/// Whether a kernel on `device` may read (or write) every byte of `range`: device memory that this
/// device has access to, or page-locked host memory.
///
/// Where it may not, the illegal address stays as on a GPU, and one line names `operation`, the
/// range and the reason. `granted` becomes the whole range around it with the same right.
bool touch(
    Machine& machine, int device, Range range, bool write, const char* operation, Range* granted);

}  // namespace spillway::emulator
