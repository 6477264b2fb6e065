// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace spillway::emulator {

/// Incremented whenever memory is released or access to it is revoked. Threads use it to validate
/// their cached ranges.
/// Threads: safe.
inline constinit std::atomic<std::uint64_t> memory_generation{1};

inline void bump_mapping_generation() {
  memory_generation.fetch_add(1, std::memory_order_release);
}

}  // namespace spillway::emulator
