// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/machine.h"
#include "emulator/device/thread_state.h"

#include <cuda.h>

namespace spillway::emulator::driver {

/// Whether the machine has this device.
bool known(const Machine& machine, CUdevice device);
/// The primary context of a device; null for kNoDevice. There are no other contexts.
CUcontext context_of(int device);
/// The device of a context; kNoDevice for null. False for an unknown context.
bool device_of(CUcontext context, int devices, int* device);

}  // namespace spillway::emulator::driver
