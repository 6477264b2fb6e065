// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

namespace spillway::interpose {

/// The library's action on a call, for the whole process: the only switch.
enum class Mode : std::uint8_t {
  kPassThrough,  ///< no action: before the start, disabled, in a forked child, at exit, after a
                 ///< sticky error
  kCount,
  kRecord,  ///< counts, and writes each call into its thread's ring
};

// Read by every wrapped call, also in assembly (exports.cpp).
extern std::atomic<Mode> mode_now __asm__("spillway_mode_now");

inline Mode mode() {
  return mode_now.load(std::memory_order_relaxed);
}

/// Sets the mode, unless the library was stopped. Threads: safe.
void set_mode(Mode mode);

enum class Stop : std::uint8_t { kDisabled, kForked, kExit, kStickyError };

/// Forwards all calls unchanged from now on, permanently. The first reason is kept.
/// Threads: safe, also in a child between fork and exec.
void stop(Stop why);

/// The reason for that; none while the library is active. Threads: safe.
std::optional<Stop> stopped();

/// Whether a context that has returned `result` fails permanently. Driver and runtime use the same
/// numbers.
bool is_sticky(int result);

}  // namespace spillway::interpose
