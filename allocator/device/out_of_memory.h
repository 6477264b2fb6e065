// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/device/device_runtime.h"

#include <string>

namespace spillway {

/// The text of PyTorch's error for an allocation of `size` bytes that failed with `why`: requested
/// bytes, the device's memory, memory by owner, and possible remedies.
std::string out_of_memory_text(DeviceRuntime& runtime, Bytes size, const Status& why);

}  // namespace spillway
