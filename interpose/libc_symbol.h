// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway::interpose {

/// A function of the C library itself (of libdl, where it is one of its own), by its symbol table:
/// neither dlsym nor the dynamic linker's locks or memory are used. Null where it has none of that
/// name. Threads: safe.
void* libc_symbol(const char* name);

}  // namespace spillway::interpose
