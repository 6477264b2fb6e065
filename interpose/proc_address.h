// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interpose/entries.h"

#include <cstdint>
#include <optional>

namespace spillway::interpose {

/// The wrapped driver function that cuGetProcAddress finds for a name, a version and its flags.
/// None for unwrapped functions, and for a version newer than the headers, whose function may have
/// other arguments.
/// Threads: safe.
std::optional<Entry> entry_for(const char* base, int version, std::uint64_t flags);

/// Called after a successful look-up: replaces the result by our function, which forwards its calls
/// to it. The arguments are those of cuGetProcAddress, cuGetProcAddress_v2 and
/// cudaGetDriverEntryPointByVersion.
/// Threads: safe.
void wrap_found(const char* base, void** found, int version, std::uint64_t flags);
void wrap_found(
    const char* base, void** found, int version, std::uint64_t flags, const void* status);
void wrap_found(
    const char* base, void** found, unsigned version, std::uint64_t flags, const void* status);

/// Our exported function, which forwards its calls to `found` from now on. Null if calls by name
/// reach another function, now or later: a look-up does not change the target of other calls.
/// Threads: safe.
void* wrapped(Entry entry, void* found);

/// The entry of an exported name; none for other names. Threads: safe.
std::optional<Entry> entry_named(const char* symbol);

/// The number of look-ups with a version newer than the headers. Threads: safe.
std::uint64_t newer_look_ups();

}  // namespace spillway::interpose
