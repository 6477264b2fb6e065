// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"
#include "interpose/counters.h"

#include <string>

namespace spillway::interpose {

/// Records every call from now on, to be written to a file at `path` ("%p" in it becomes the
/// process's number) in pieces and at the end. The file is made with the first piece, so that a
/// process that uses no GPU leaves none. Errors: kNotReady while one is recorded or after the
/// library was stopped. Threads: safe.
Status trace_begin(std::string path);

/// Ends it: what threads have recorded is written. Errors: kNotReady where none is recorded,
/// kInvalidArgument where the file could not be made or written.
Status trace_end();

/// For a forked child, which has its parent's: leaves the file alone.
void trace_forget();

/// The place for the next event of a full ring, which goes into the file first; null where there is
/// none, and the event is lost.
Event* trace_make_room(ThreadCounters& counters);

/// The place for a thread's next event, to be written there and then published; null as above. Not
/// copied to: the processor waits where wide loads follow narrow stores of the same bytes.
[[gnu::always_inline]] inline Event* trace_place(ThreadCounters& counters) {
  Event* place = counters.ring.next();
  return place != nullptr ? place : trace_make_room(counters);
}

/// For a thread that ends: the code that gets its counters next is another thread.
void trace_thread_ends(ThreadCounters& counters);

}  // namespace spillway::interpose
