// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interpose/entries.h"

namespace spillway::interpose {

/// The C library's own dlsym, past every interposer, also before constructors have run. Our own
/// look-ups use this one: the public name is our own function. Threads: safe.
void* plain_dlsym(void* handle, const char* name);

/// The definition of `name` after ours in the search order, null where there is none; dlerror
/// reports no error then. Threads: safe.
void* next_in_scope(const char* name);

/// The definition of a wrapped function that comes after ours, null where there is none. Threads:
/// safe.
void* next_definition(Entry entry);

/// Which of the objects of a process matter to a look-up.
enum class Object : std::uint8_t { kOther, kSelf, kOurs, kDriver, kRuntime, kEmulator };

/// The object that an address lies in, by its file name: libcuda.so.1 is the driver wherever it
/// lies. Threads: safe.
Object object_of(const void* address);

/// Whether `address` may be what `library` defines.
bool defines(const void* address, Library library);

}  // namespace spillway::interpose
