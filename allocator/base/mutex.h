// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__clang__)
#define SPILLWAY_ATTRIBUTE(x) __attribute__((x))
#else
#define SPILLWAY_ATTRIBUTE(x)
#endif

/// A member that may be touched only with `mutex` held; clang checks it (-Wthread-safety).
#define SPILLWAY_GUARDED_BY(mutex) SPILLWAY_ATTRIBUTE(guarded_by(mutex))
/// A function that its caller must hold `mutex` for.
#define SPILLWAY_REQUIRES(mutex) SPILLWAY_ATTRIBUTE(requires_capability(mutex))
/// A function that locks what clang cannot follow, such as all of many.
#define SPILLWAY_UNCHECKED_LOCKS SPILLWAY_ATTRIBUTE(no_thread_safety_analysis)

namespace spillway {

/// std::mutex with the annotations that let clang check who holds it.
class SPILLWAY_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  void lock() SPILLWAY_ATTRIBUTE(acquire_capability()) { mutex_.lock(); }

  void unlock() SPILLWAY_ATTRIBUTE(release_capability()) { mutex_.unlock(); }

 private:
  std::mutex mutex_;
};

/// Holds a Mutex for a scope.
class SPILLWAY_ATTRIBUTE(scoped_lockable) Lock {
 public:
  explicit Lock(Mutex& mutex) SPILLWAY_ATTRIBUTE(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }

  ~Lock() SPILLWAY_ATTRIBUTE(release_capability()) { mutex_.unlock(); }

  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Mutex& mutex_;
};

/// A mutex for sections that most often take some tens of nanoseconds, or that threads seldom meet
/// in: one exchange where nothing else is inside. Waiters spin for a while, then yield, so that a
/// holder without a processor gets one, and sleep where it is still inside.
class SPILLWAY_ATTRIBUTE(capability("mutex")) LightMutex {
 public:
  void lock() SPILLWAY_ATTRIBUTE(acquire_capability()) {
    if (!held_.exchange(true, std::memory_order_acquire)) return;
    lock_contended();
  }

  /// Whether it is the caller's now; never waits.
  bool try_lock() SPILLWAY_ATTRIBUTE(try_acquire_capability(true)) {
    return !held_.exchange(true, std::memory_order_acquire);
  }

  void unlock() SPILLWAY_ATTRIBUTE(release_capability()) {
    held_.store(false, std::memory_order_release);
  }

 private:
  void lock_contended() {
    constexpr int kSpins = 64;
    constexpr int kYields = 1024;
    constexpr std::chrono::microseconds kSleep{50};
    for (int spins = 0;; ++spins) {
      while (held_.load(std::memory_order_relaxed)) {
        if (++spins < kSpins) {
          pause();
        } else if (spins < kYields) {
          std::this_thread::yield();
        } else {
          std::this_thread::sleep_for(kSleep);
        }
      }
      if (!held_.exchange(true, std::memory_order_acquire)) return;
    }
  }

  static void pause() {
#if defined(__x86_64__)
    _mm_pause();
#endif
  }

  std::atomic<bool> held_{false};
};

/// Holds a LightMutex for a scope.
class SPILLWAY_ATTRIBUTE(scoped_lockable) LightLock {
 public:
  explicit LightLock(LightMutex& mutex) SPILLWAY_ATTRIBUTE(acquire_capability(mutex))
      : mutex_(mutex) {
    mutex_.lock();
  }

  ~LightLock() SPILLWAY_ATTRIBUTE(release_capability()) { mutex_.unlock(); }

  LightLock(const LightLock&) = delete;
  LightLock& operator=(const LightLock&) = delete;

 private:
  LightMutex& mutex_;
};

}  // namespace spillway
