// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace spillway::emulator {

/// Rises whenever memory goes or a right to access it is taken away, so that what a thread
/// remembers of a range can be told from what is still true. Threads: safe.
inline constinit std::atomic<std::uint64_t> memory_generation{1};

inline void bump_mapping_generation() {
  memory_generation.fetch_add(1, std::memory_order_release);
}

}  // namespace spillway::emulator
