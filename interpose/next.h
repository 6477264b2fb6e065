// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interpose/entries.h"

namespace spillway::interpose {

/// The C library's own dlsym, bypassing all interposers, also before constructors have run. Our own
/// look-ups use it, because the public name is our function.
/// Threads: safe.
void* plain_dlsym(void* handle, const char* name);

/// The definition of `name` after ours in the search order; null if there is none, without an error
/// in dlerror.
/// Threads: safe.
void* next_in_scope(const char* name);

/// The definition of a wrapped function after ours; null if there is none. Threads: safe.
void* next_definition(Entry entry);

/// The classes of objects in a process that a look-up distinguishes.
enum class Object : std::uint8_t { kOther, kSelf, kOurs, kDriver, kRuntime, kEmulator };

/// The class of the object that contains an address, by its file name: libcuda.so.1 is the driver
/// in any directory.
/// Threads: safe.
Object object_of(const void* address);

/// Whether `library` may define the symbol at `address`.
bool defines(const void* address, Library library);

}  // namespace spillway::interpose
