// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/vector_clock.h"

#include <pthread.h>

namespace spillway::emulator {

/// A host thread as the order checker sees it.
/// Threads: touched by its own thread alone. Ownership: kept indefinitely and given to a later
/// thread.
struct HostThread {
  Actor actor = 0;
  VectorClock clock;
  bool named = false;      // the checker knows how reports call it
  bool is_stream = false;  // see AsStream
  HostThread* next_free = nullptr;
};

/// Whether threads are followed: SPILLWAY_EMULATE_CHECK=1.
bool follows_threads();
/// Begins to follow; the library's start does it where the environment says so.
void follow_threads();

/// The calling thread. One that was not seen starting knows of everything that happened before.
HostThread& this_host_thread();

/// A thread that the caller is about to start: it knows what the caller knows. Null where threads
/// are not followed.
HostThread* prepare_host_thread();
/// The calling thread is that one; until its end, when the code that joins it learns what it knew.
void become(HostThread* thread);
/// The thread did not start.
void discard(HostThread* thread);

/// How threads learn from each other: at an object (a mutex, a semaphore, a thread's end) one says
/// what it knows and another hears of all that was said there. Several objects may share a place,
/// which orders more than the program does. Allocates nothing, waits for nothing.
void release_at(const void* object);
void acquire_at(const void* object);

/// While the calling thread pauses, it neither says nor hears anything.
void pause_this_thread(bool pause);

/// Objects in here order nothing: the emulated machine's own lock.
void ignore_objects_in(const void* begin, const void* end);

/// For a scope, the calling thread is a function that a stream runs: it knows what the stream knew
/// when the function was queued, and learns nothing for the thread that lends itself.
class AsStream {
 public:
  AsStream(Actor stream, const VectorClock& clock);
  ~AsStream();

  /// What the function knows now; the stream's next operations come after it.
  [[nodiscard]] const VectorClock& clock() const { return stream_.clock; }

  AsStream(const AsStream&) = delete;
  AsStream& operator=(const AsStream&) = delete;

 private:
  HostThread stream_;
  HostThread* outer_;
};

}  // namespace spillway::emulator
