// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <atomic>

namespace spillway::emulator {

/// A lock for a few instructions. Not a mutex, because it is taken inside the program's own mutex
/// functions.
class SpinLock {
 public:
  void lock() {
    while (taken_.exchange(true, std::memory_order_acquire))
      sched_yield();
  }

  void unlock() { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_{false};
};

/// Holds a SpinLock for a scope.
class SpinGuard {
 public:
  explicit SpinGuard(SpinLock& lock) : lock_(lock) { lock_.lock(); }

  ~SpinGuard() { lock_.unlock(); }

  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  SpinLock& lock_;
};

}  // namespace spillway::emulator
