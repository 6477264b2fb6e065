// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace spillway::emulator {

/// Incremented with every operation submitted to any stream. A thread can thus detect without the
/// lock that a stream which it has drained is still empty.
/// Threads: safe.
inline constinit std::atomic<std::uint64_t> work_given{1};

/// Number of captures in progress. Threads: safe.
inline constinit std::atomic<int> captures_going_on{0};

}  // namespace spillway::emulator
