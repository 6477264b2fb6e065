// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway::interpose {

/// The definition of a CUDA runtime function that comes after ours, null where there is none.
/// Threads: safe.
void* next_definition(const char* name);

}  // namespace spillway::interpose
