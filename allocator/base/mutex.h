// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mutex>

#if defined(__clang__)
#define SPILLWAY_ATTRIBUTE(x) __attribute__((x))
#else
#define SPILLWAY_ATTRIBUTE(x)
#endif

/// A member that may be touched only with `mutex` held; clang checks it (-Wthread-safety).
#define SPILLWAY_GUARDED_BY(mutex) SPILLWAY_ATTRIBUTE(guarded_by(mutex))
/// A function that its caller must hold `mutex` for.
#define SPILLWAY_REQUIRES(mutex) SPILLWAY_ATTRIBUTE(requires_capability(mutex))

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

}  // namespace spillway
