// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace spillway {

/// A free list for objects of one size that are allocated on one thread and freed on another,
/// thousands per step. The last freed object is reused first. malloc caches few such objects for
/// the freeing thread and coalesces the others.
///
/// Threads: safe.
/// Ownership: one per size and alignment, never destroyed. Its memory is that of the peak number of
/// objects.
template <std::size_t kSize, std::size_t kAlignment>
class ObjectPool {
 public:
  static ObjectPool& instance() {
    static auto* const pool = new ObjectPool;
    return *pool;
  }

  /// Errors: std::bad_alloc.
  void* take() {
    const LightLock lock(mutex_);
    if (free_ == nullptr) grow();
    Free* const taken = free_;
    free_ = taken->next;
    return taken;
  }

  void give(void* at) {
    const LightLock lock(mutex_);
    free_ = new (at) Free{free_};
  }

 private:
  struct Free {
    Free* next;
  };

  union Object {
    Free free;
    alignas(kAlignment) std::byte bytes[kSize];
  };

  static constexpr std::size_t kAtOnce = 64;

  void grow() SPILLWAY_REQUIRES(mutex_) {
    auto* const made = static_cast<Object*>(
        ::operator new (kAtOnce * sizeof(Object), std::align_val_t{alignof(Object)}));
    for (std::size_t each = kAtOnce; each > 0; --each)
      free_ = new (&made[each - 1]) Free{free_};
  }

  LightMutex mutex_;
  Free* free_ SPILLWAY_GUARDED_BY(mutex_) = nullptr;
};

/// Allocates single objects from their pool, for containers and std::allocate_shared. Under the
/// address sanitizer everything comes from its allocator, which detects uses after free.
template <typename T>
class PoolAllocator {
 public:
  using value_type = T;  // NOLINT(readability-identifier-naming): as containers ask for it

  PoolAllocator() = default;

  template <typename U>
  PoolAllocator(const PoolAllocator<U>&) {}  // NOLINT(google-explicit-constructor)

  T* allocate(std::size_t count) {
    if (count != 1 || !kPools) return std::allocator<T>().allocate(count);
    return static_cast<T*>(ObjectPool<sizeof(T), alignof(T)>::instance().take());
  }

  void deallocate(T* at, std::size_t count) {
    if (count != 1 || !kPools) return std::allocator<T>().deallocate(at, count);
    ObjectPool<sizeof(T), alignof(T)>::instance().give(at);
  }

  friend bool operator==(PoolAllocator, PoolAllocator) { return true; }

 private:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr bool kPools = false;
#else
  static constexpr bool kPools = true;
#endif
};

/// As std::make_shared; object and counts come from their pool.
template <typename T, typename... Arguments>
std::shared_ptr<T> make_pooled(Arguments&&... arguments) {
  return std::allocate_shared<T>(PoolAllocator<T>(), std::forward<Arguments>(arguments)...);
}

/// A base for classes whose single objects, created by new, come from their pool.
template <typename T>
class Pooled {
 public:
  static void* operator new(std::size_t) { return PoolAllocator<T>().allocate(1); }

  static void operator delete(void* at) { PoolAllocator<T>().deallocate(static_cast<T*>(at), 1); }
};

}  // namespace spillway
