// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// The C interface of libspillway_preload.so; found by name in the process. Threads: each may be
/// called on any thread at any time.
extern "C" {

/// The number of calls of a wrapped function ("cudaMalloc") by the process. With the suffix
/// "_bytes", the bytes that those calls requested. Nested calls by CUDA are not counted.
/// "newer_look_ups" is the number of look-ups of driver functions by an unknown version, which are
/// not wrapped. 0 for any other name. Counting ends with SPILLWAY_DISABLE=1, in a forked child, and
/// after an error that the CUDA context does not survive.
std::uint64_t spillway_preload_count(const char* what);

/// Why calls are forwarded uncounted: "" while they are counted, else "disabled", "forked", "exit"
/// or "error".
const char* spillway_preload_stopped();

/// With SPILLWAY_PRELOAD=substitute: why the last request that our heap could have served was not
/// served, or why none will be; "" if neither. The pointer stays valid.
const char* spillway_preload_refusal();

/// Reports that the Python package has set up this process, or has reported why not. No other
/// component needs to report it.
void spillway_preload_job_started();

/// Records every call from now on in a file (docs/preload_trace.md); "%p" in the path is replaced
/// by the process ID.
/// Errors: nonzero if a trace is open, after spillway_preload_stopped(), and for an empty path.
int spillway_preload_trace_begin(const char* path);

/// Writes the rest and ends the trace.
/// Errors: nonzero if none is open, or if the file could not be created or written; the trace has
/// ended in that case too.
int spillway_preload_trace_end();
}
