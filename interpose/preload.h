// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// The C interface of libspillway_preload.so; found by name in the process. Threads: each may be
/// called on any thread at any time.
extern "C" {

/// How often the process called a function that the preload library wraps ("cudaMalloc"), or, with
/// "_bytes" behind the name, how many bytes those calls asked for. Calls that CUDA makes inside a
/// call are not counted. "newer_look_ups" is how often a driver function was asked for by a version
/// that is not known, and not wrapped for it. 0 for any other name. Counting ends with
/// SPILLWAY_DISABLE=1, in a forked child, and after an error that the CUDA context does not
/// survive.
std::uint64_t spillway_preload_count(const char* what);

/// Why calls pass through uncounted: "" while they do not, "disabled", "forked", "exit" or "error".
const char* spillway_preload_stopped();

/// With SPILLWAY_PRELOAD=substitute: why the last request that our heap could have served was not
/// served, or why none will be; "" if neither. Valid for good.
const char* spillway_preload_refusal();

/// The Python package has set this process up, or has said why not: nothing else need say a word.
void spillway_preload_job_started();

/// Records every call from now on to a file (docs/preload_trace.md); "%p" in the path becomes the
/// process's number. Errors: a number other than 0 where one is being written, after
/// spillway_preload_stopped(), and for no path.
int spillway_preload_trace_begin(const char* path);

/// Writes what is left and ends it. Errors: a number other than 0 where none is being written, and
/// where the file could not be made or written; it has ended anyway.
int spillway_preload_trace_end();
}
