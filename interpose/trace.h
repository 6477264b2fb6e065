// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"
#include "interpose/counters.h"

#include <string>

namespace spillway::interpose {

/// Records every call from now on in a file at `path` ("%p" is replaced by the process ID), in
/// pieces and at the end. The file is created with the first piece, so that a process without GPU
/// use leaves none.
/// Errors: kNotReady while a trace is open or after the library was stopped.
/// Threads: safe.
Status trace_begin(std::string path);

/// Ends the trace and writes all recorded events.
/// Errors: kNotReady if none is open, kInvalidArgument if the file could not be created or written.
Status trace_end();

/// For a forked child, which inherits its parent's trace: leaves the file alone.
void trace_forget();

/// Writes a full ring to the file and returns the slot for the next event. Null if there is none;
/// the event is lost.
Event* trace_flush_ring(ThreadCounters& counters);

/// The slot for a thread's next event, to be written in place and then published; null as above.
/// Not copied, because wide loads after narrow stores to the same bytes stall the processor.
[[gnu::always_inline]] inline Event* trace_slot(ThreadCounters& counters) {
  Event* slot = counters.ring.next();
  return slot != nullptr ? slot : trace_flush_ring(counters);
}

/// Called when a thread ends: its counters may go to another thread next.
void trace_thread_ends(ThreadCounters& counters);

}  // namespace spillway::interpose
