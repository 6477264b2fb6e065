// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway::interpose {

/// A function of the C library itself (or of a separate libdl), found in its symbol table. Uses
/// neither dlsym nor the dynamic linker's locks or memory. Null if there is no such function.
/// Threads: safe.
void* libc_symbol(const char* name);

}  // namespace spillway::interpose
