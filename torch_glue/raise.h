// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

namespace spillway {

/// Throws what Python knows a failed Status as: ValueError for a bad argument, MemoryError where
/// the host has no memory and torch.OutOfMemoryError where the device has none, else RuntimeError.
void raise(const Status& status);

}  // namespace spillway
