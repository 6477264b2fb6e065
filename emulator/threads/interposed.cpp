// SPDX-License-Identifier: Apache-2.0
// Interposed libc functions by which host threads order each other; the order checker derives
// happens-before order from them. Without the checker they only forward.
#include "emulator/threads/host_thread.h"

#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>

#include <atomic>
#include <cerrno>
#include <ctime>
#include <memory>

namespace emu = spillway::emulator;

namespace {

/// libc's function of that name, looked up at its first call: these are called before any
/// constructor has run.
class Real {
 public:
  explicit constexpr Real(const char* name, const char* version = nullptr)
      : name_(name), version_(version) {}

  /// Null if this libc lacks it.
  void* get() {
    void* found = found_.load(std::memory_order_relaxed);
    if (found == nullptr) {
      if (version_ != nullptr) found = dlvsym(RTLD_NEXT, name_, version_);
      if (found == nullptr) found = dlsym(RTLD_NEXT, name_);
      found_.store(found, std::memory_order_relaxed);
    }
    return found;
  }

 private:
  const char* name_;
  const char* version_;  // for a name with several versions
  std::atomic<void*> found_{nullptr};
};

struct Start {
  void* (*function)(void*);
  void* argument;
  emu::HostThread* thread;
};

void* started(void* argument) {
  const Start start = *static_cast<Start*>(argument);
  delete static_cast<Start*>(argument);
  emu::become(start.thread);
  return start.function(start.argument);
}

/// After a successful call, the thread acquires the knowledge released at the object.
int heard(int result, const void* object) {
  if (result == 0) emu::acquire_at(object);
  return result;
}

/// The wait releases the mutex and reacquires it within libc.
template <typename Wait>
int wait_for_condition(pthread_mutex_t* mutex, Wait&& wait) {
  emu::release_at(mutex);
  const int result = wait();
  emu::acquire_at(mutex);
  return result;
}

}  // namespace

// NOLINTBEGIN(bugprone-macro-parentheses): a name, which cannot stand in parentheses
/// `real` is libc's function in the scope that follows.
#define SPILLWAY_REAL(name, version)                                        \
  static constinit Real real_function(#name, version);                      \
  const auto real = reinterpret_cast<decltype(&name)>(real_function.get()); \
  if (real == nullptr) return ENOSYS

/// As above, for functions that report errors in errno.
#define SPILLWAY_REAL_WITH_ERRNO(name)                                      \
  static constinit Real real_function(#name, nullptr);                      \
  const auto real = reinterpret_cast<decltype(&name)>(real_function.get()); \
  if (real == nullptr) {                                                    \
    errno = ENOSYS;                                                         \
    return -1;                                                              \
  }
// NOLINTEND(bugprone-macro-parentheses)

extern "C" {

int pthread_create(pthread_t* thread,
                   const pthread_attr_t* attributes,
                   void* (*function)(void*),
                   void* argument) {
  SPILLWAY_REAL(pthread_create, nullptr);
  emu::HostThread* prepared = emu::prepare_host_thread();
  if (prepared == nullptr) return real(thread, attributes, function, argument);
  auto start = std::make_unique<Start>(Start{function, argument, prepared});
  const int result = real(thread, attributes, started, start.get());
  if (result == 0) {
    static_cast<void>(start.release());  // NOLINT(bugprone-unused-return-value): the thread's now
  } else {
    emu::discard(prepared);
  }
  return result;
}

int pthread_join(pthread_t thread, void** value) {
  SPILLWAY_REAL(pthread_join, nullptr);
  return heard(real(thread, value), reinterpret_cast<const void*>(thread));
}

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  SPILLWAY_REAL(pthread_mutex_lock, nullptr);
  return heard(real(mutex), mutex);
}

int pthread_mutex_trylock(pthread_mutex_t* mutex) {
  SPILLWAY_REAL(pthread_mutex_trylock, nullptr);
  return heard(real(mutex), mutex);
}

int pthread_mutex_timedlock(pthread_mutex_t* mutex, const timespec* until) {
  SPILLWAY_REAL(pthread_mutex_timedlock, nullptr);
  return heard(real(mutex, until), mutex);
}

int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  SPILLWAY_REAL(pthread_mutex_clocklock, nullptr);
  return heard(real(mutex, clock, until), mutex);
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) {
  SPILLWAY_REAL(pthread_mutex_unlock, nullptr);
  emu::release_at(mutex);
  return real(mutex);
}

int pthread_rwlock_rdlock(pthread_rwlock_t* lock) {
  SPILLWAY_REAL(pthread_rwlock_rdlock, nullptr);
  return heard(real(lock), lock);
}

int pthread_rwlock_tryrdlock(pthread_rwlock_t* lock) {
  SPILLWAY_REAL(pthread_rwlock_tryrdlock, nullptr);
  return heard(real(lock), lock);
}

int pthread_rwlock_timedrdlock(pthread_rwlock_t* lock, const timespec* until) {
  SPILLWAY_REAL(pthread_rwlock_timedrdlock, nullptr);
  return heard(real(lock, until), lock);
}

int pthread_rwlock_clockrdlock(pthread_rwlock_t* lock, clockid_t clock, const timespec* until) {
  SPILLWAY_REAL(pthread_rwlock_clockrdlock, nullptr);
  return heard(real(lock, clock, until), lock);
}

int pthread_rwlock_wrlock(pthread_rwlock_t* lock) {
  SPILLWAY_REAL(pthread_rwlock_wrlock, nullptr);
  return heard(real(lock), lock);
}

int pthread_rwlock_trywrlock(pthread_rwlock_t* lock) {
  SPILLWAY_REAL(pthread_rwlock_trywrlock, nullptr);
  return heard(real(lock), lock);
}

int pthread_rwlock_timedwrlock(pthread_rwlock_t* lock, const timespec* until) {
  SPILLWAY_REAL(pthread_rwlock_timedwrlock, nullptr);
  return heard(real(lock, until), lock);
}

int pthread_rwlock_clockwrlock(pthread_rwlock_t* lock, clockid_t clock, const timespec* until) {
  SPILLWAY_REAL(pthread_rwlock_clockwrlock, nullptr);
  return heard(real(lock, clock, until), lock);
}

int pthread_rwlock_unlock(pthread_rwlock_t* lock) {
  SPILLWAY_REAL(pthread_rwlock_unlock, nullptr);
  emu::release_at(lock);
  return real(lock);
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  SPILLWAY_REAL(pthread_cond_wait, "GLIBC_2.3.2");
  return wait_for_condition(mutex, [&] { return real(condition, mutex); });
}

int pthread_cond_timedwait(pthread_cond_t* condition,
                           pthread_mutex_t* mutex,
                           const timespec* until) {
  SPILLWAY_REAL(pthread_cond_timedwait, "GLIBC_2.3.2");
  return wait_for_condition(mutex, [&] { return real(condition, mutex, until); });
}

int pthread_cond_clockwait(pthread_cond_t* condition,
                           pthread_mutex_t* mutex,
                           clockid_t clock,
                           const timespec* until) {
  SPILLWAY_REAL(pthread_cond_clockwait, nullptr);
  return wait_for_condition(mutex, [&] { return real(condition, mutex, clock, until); });
}

int pthread_barrier_wait(pthread_barrier_t* barrier) {
  SPILLWAY_REAL(pthread_barrier_wait, nullptr);
  emu::release_at(barrier);
  const int result = real(barrier);
  emu::acquire_at(barrier);
  return result;
}

int sem_post(sem_t* semaphore) {
  SPILLWAY_REAL_WITH_ERRNO(sem_post);
  emu::release_at(semaphore);
  return real(semaphore);
}

int sem_wait(sem_t* semaphore) {
  SPILLWAY_REAL_WITH_ERRNO(sem_wait);
  return heard(real(semaphore), semaphore);
}

int sem_trywait(sem_t* semaphore) {
  SPILLWAY_REAL_WITH_ERRNO(sem_trywait);
  return heard(real(semaphore), semaphore);
}

int sem_timedwait(sem_t* semaphore, const timespec* until) {
  SPILLWAY_REAL_WITH_ERRNO(sem_timedwait);
  return heard(real(semaphore, until), semaphore);
}

int sem_clockwait(sem_t* semaphore, clockid_t clock, const timespec* until) {
  SPILLWAY_REAL_WITH_ERRNO(sem_clockwait);
  return heard(real(semaphore, clock, until), semaphore);
}
}
