// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/vector_clock.h"

#include <pthread.h>

namespace spillway::emulator {

/// A host thread for the order checker.
/// Threads: accessed by its own thread only.
/// Ownership: never freed; reused for later threads.
struct HostThread {
  Actor actor = 0;
  VectorClock clock;
  bool named = false;      // the checker knows its name for reports
  bool is_stream = false;  // see AsStream
  HostThread* next_free = nullptr;
};

/// Whether threads are tracked: SPILLWAY_EMULATE_CHECK=1.
bool follows_threads();
/// Starts tracking; the library's start calls it if the environment requests it.
void follow_threads();

/// The calling thread. A thread whose start was not observed knows all earlier operations.
HostThread& this_host_thread();

/// Prepares a thread that the caller is about to start, with the caller's knowledge. Null if
/// threads are not tracked.
HostThread* prepare_host_thread();
/// Makes the calling thread that one until its end; a thread that joins it gets its knowledge.
void become(HostThread* thread);
/// The thread was not started.
void discard(HostThread* thread);

/// Order between threads: at an object (a mutex, a semaphore, a thread's end) one thread releases
/// its knowledge and another one acquires all knowledge released there. Thousands of objects have
/// clocks of their own; further ones share them, which orders more than the program does.
/// Allocates nothing, never waits.
void release_at(const void* object);
void acquire_at(const void* object);

/// While the calling thread pauses, it neither releases nor acquires.
void pause_this_thread(bool pause);

/// Objects in this range establish no order, such as the emulated machine's own lock.
void ignore_objects_in(const void* begin, const void* end);

/// For a scope, the calling thread runs a function of a stream. It has the stream's knowledge at
/// the time when the function was queued, and acquires none for the underlying thread.
class AsStream {
 public:
  AsStream(Actor stream, const VectorClock& clock);
  ~AsStream();

  /// The function's present knowledge; the stream's later operations are ordered after it.
  [[nodiscard]] const VectorClock& clock() const { return stream_.clock; }

  AsStream(const AsStream&) = delete;
  AsStream& operator=(const AsStream&) = delete;

 private:
  HostThread stream_;
  HostThread* outer_;
};

/// The numbers of all actors, host threads and streams alike. A released number is assigned to an
/// actor that `knows` everything its former owner did. Its epochs continue, so the new owner counts
/// as ordered after the old one.
/// Requires: the new owner's clock begins with `knows`.
/// Threads: safe, without a lock that the program could observe.
Actor take_actor(const VectorClock& knows);
void release_actor(Actor actor);

/// Counts one more operation of the actor in its own `clock`.
void advance(Actor actor, VectorClock& clock);

/// Joins `clock` with all operations so far.
void learn_everything(VectorClock& clock);

/// Prevents assignments and releases until the unlock.
void lock_actors();
void unlock_actors();

}  // namespace spillway::emulator
