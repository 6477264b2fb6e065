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

/// A member that may be accessed only with `mutex` held; clang checks it (-Wthread-safety).
#define SPILLWAY_GUARDED_BY(mutex) SPILLWAY_ATTRIBUTE(guarded_by(mutex))
/// A function whose caller must hold `mutex`.
#define SPILLWAY_REQUIRES(mutex) SPILLWAY_ATTRIBUTE(requires_capability(mutex))
/// A function whose locks clang cannot analyze, such as a container of locks.
#define SPILLWAY_UNCHECKED_LOCKS SPILLWAY_ATTRIBUTE(no_thread_safety_analysis)

namespace spillway {

/// std::mutex with the annotations by which clang checks its use.
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

/// A mutex for sections that usually take tens of nanoseconds, or that are rarely contended: one
/// atomic exchange without contention. Waiters spin for a while, then yield, so that a preempted
/// holder can run, and finally sleep.
class SPILLWAY_ATTRIBUTE(capability("mutex")) LightMutex {
 public:
  void lock() SPILLWAY_ATTRIBUTE(acquire_capability()) {
    if (!held_.exchange(true, std::memory_order_acquire)) return;
    lock_contended();
  }

  /// Locks without waiting; returns whether it succeeded.
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
