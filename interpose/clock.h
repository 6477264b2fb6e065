// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <ctime>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace spillway::interpose {

/// Nanoseconds of CLOCK_MONOTONIC.
inline std::uint64_t nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

/// The cheapest clock common to all threads. Its rate is unknown, so a trace contains times of both
/// clocks.
/// Errors: on a processor whose counter changes its rate, long traces are distorted.
inline std::uint64_t ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#else
  return nanoseconds();
#endif
}

}  // namespace spillway::interpose
