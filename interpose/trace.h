// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"
#include "interpose/books.h"

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

/// Puts an event into a thread's ring, and the ring into the file when it is full.
void trace_add(Books& books, const Event& event);

/// For a thread that ends: whoever gets its books next is another thread.
void trace_thread_ends(Books& books);

}  // namespace spillway::interpose
