// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace spillway::interpose {

enum class Entry {
#define SPILLWAY_ENTRY(name) k_##name,
#include "interpose/entry_points.inc"
#undef SPILLWAY_ENTRY
  kCount,
};

/// Adds one call that asked for `bytes`. Threads: safe.
void count(Entry entry, std::size_t bytes);

}  // namespace spillway::interpose
