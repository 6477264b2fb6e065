// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/runtime/device_runtime.h"

#include <string>

namespace spillway {

/// From now on, until the step ends, the device's curve() follows what it holds, whichever
/// allocator its memory is of. Called before the first decision of a step; later calls do nothing.
/// Errors: c10::Error where PyTorch's allocator cannot be followed.
void follow_step(DeviceRuntime& device);

/// When the backward pass that runs on this thread has ended, the teller is called; nothing where
/// none runs.
void tell_misses_after_backward();

/// Where PyTorch's allocator ran out of memory in a step with a budget: what that must be at least,
/// as text for the error, once; empty otherwise.
std::string take_end_of_memory();

/// Who tells the program that a budget was missed, by an exception of its own; null for nobody.
void set_miss_teller(void (*tell)());

}  // namespace spillway
