// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

namespace spillway {

/// Throws the Python exception for a failed Status: ValueError for an invalid argument, MemoryError
/// without host memory, torch.OutOfMemoryError without device memory, else RuntimeError.
void raise(const Status& status);

}  // namespace spillway
