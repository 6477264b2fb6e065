// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

namespace spillway {

/// Throws what Python knows a failed Status as: ValueError for a bad argument, else RuntimeError.
void raise(const Status& status);

}  // namespace spillway
