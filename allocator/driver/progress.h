// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

/// What host threads know of the device's progress, for the order checker of an emulated GPU. It
/// sees no order at a LightMutex.
namespace spillway::driver::progress {

/// Whether there is a checker. Set before memory is allocated.
inline std::atomic<bool> is_checked{false};
void report(const char* function, const void* object);

/// This thread has seen the device reach a point. A thread that relies on it learns it at `object`.
inline void share(const void* object) {
  if (is_checked.load(std::memory_order_relaxed))
    report("spillway_emulator_thread_releases", object);
}

inline void rely_on(const void* object) {
  if (is_checked.load(std::memory_order_relaxed))
    report("spillway_emulator_thread_acquires", object);
}

}  // namespace spillway::driver::progress
