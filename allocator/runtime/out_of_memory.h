// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/runtime/device_runtime.h"

#include <string>

namespace spillway {

/// The text of PyTorch's error for an allocation of `size` that failed with `why`: what was asked,
/// what the device has, who holds what, and what to do.
std::string out_of_memory_text(DeviceRuntime& runtime, Bytes size, const Status& why);

}  // namespace spillway
