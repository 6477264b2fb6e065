// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>

/// What host threads know of the device's progress, for the order checker of an emulated GPU. It
/// sees no order at a LightMutex.
namespace spillway::driver::progress {

using Report = void (*)(const void* object);

/// The checker's functions, by which a thread releases and acquires what it knows at an object.
/// Null without a checker. Set before memory is allocated.
inline std::atomic<Report> releases{nullptr};
inline std::atomic<Report> acquires{nullptr};

/// This thread has seen the device reach a point. A thread that relies on it learns it at `object`.
inline void share(const void* object) {
  if (const Report report = releases.load(std::memory_order_relaxed)) report(object);
}

inline void rely_on(const void* object) {
  if (const Report report = acquires.load(std::memory_order_relaxed)) report(object);
}

}  // namespace spillway::driver::progress
