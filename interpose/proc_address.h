// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interpose/entries.h"

#include <cstdint>
#include <optional>

namespace spillway::interpose {

/// Which wrapped driver function cuGetProcAddress means by a name, a version and its flags; none
/// for what is not wrapped, and for a version that the headers do not know yet, whose function may
/// have other arguments. Threads: safe.
std::optional<Entry> entry_for(const char* base, int version, std::uint64_t flags);

/// After a look-up that succeeded: puts our function in the place of what was found, and passes its
/// calls on to that. The arguments are those of cuGetProcAddress, of cuGetProcAddress_v2 and of
/// cudaGetDriverEntryPointByVersion. Threads: safe.
void wrap_found(const char* base, void** found, int version, std::uint64_t flags);
void wrap_found(
    const char* base, void** found, int version, std::uint64_t flags, const void* status);
void wrap_found(
    const char* base, void** found, unsigned version, std::uint64_t flags, const void* status);

/// Our exported function, which passes its calls on to `found` from now on. Null where calls by
/// name go elsewhere, now or later: a look-up does not change what other calls reach. Threads:
/// safe.
void* wrapped(Entry entry, void* found);

/// The entry of an exported name; none for others, however they begin. Threads: safe.
std::optional<Entry> entry_named(const char* symbol);

/// How many look-ups named a version that the headers do not know. Threads: safe.
std::uint64_t newer_look_ups();

}  // namespace spillway::interpose
