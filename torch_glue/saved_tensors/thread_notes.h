// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"

#include <vector>

namespace spillway {

/// Notes of one thread, of any kind.
class AnyThreadNotes {
 public:
  AnyThreadNotes(const AnyThreadNotes&) = delete;
  AnyThreadNotes& operator=(const AnyThreadNotes&) = delete;

  /// Clears those of all kinds and threads: PyTorch swaps no tensor that has a weak reference.
  /// Threads: safe.
  static void clear_all() {
    const LightLock lock(all_mutex());
    for (AnyThreadNotes* const each : all())
      each->clear();
  }

 protected:
  AnyThreadNotes() = default;
  ~AnyThreadNotes() = default;

  virtual void clear() = 0;

  void enter() {
    const LightLock lock(all_mutex());
    all().push_back(this);
  }

  void leave() {
    const LightLock lock(all_mutex());
    std::erase(all(), this);
  }

 private:
  // Never destroyed: threads may end after static objects.
  static LightMutex& all_mutex() {
    static auto* const mutex = new LightMutex;
    return *mutex;
  }

  static std::vector<AnyThreadNotes*>& all() {
    static auto* const threads = new std::vector<AnyThreadNotes*>;
    return *threads;
  }
};

/// Notes with weak references to tensors. For a thread-local variable: any thread may clear them.
template <typename Notes>
class ThreadNotes final : public AnyThreadNotes {
 public:
  ThreadNotes() { enter(); }

  ~ThreadNotes() { leave(); }

  ThreadNotes(const ThreadNotes&) = delete;
  ThreadNotes& operator=(const ThreadNotes&) = delete;

  template <typename Use>
  auto with(Use use) {
    const LightLock lock(mutex_);
    return use(notes_);
  }

 private:
  void clear() override {
    with([](Notes& notes) { notes = Notes(); });
  }

  LightMutex mutex_;
  Notes notes_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
