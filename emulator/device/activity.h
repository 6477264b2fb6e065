// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace spillway::emulator {

/// Rises with everything that any stream is given, so that a thread can tell without the lock that
/// a stream which it has drained is still empty. Threads: safe.
inline constinit std::atomic<std::uint64_t> work_given{1};

/// How many captures go on. Threads: safe.
inline constinit std::atomic<int> captures_going_on{0};

}  // namespace spillway::emulator
