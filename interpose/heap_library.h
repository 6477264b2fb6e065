// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interpose/entries.h"

#include <spillway/spillway.h>

#include <string>

namespace spillway::interpose {

/// The functions of libspillway.so that serve memory. It is opened at first need, so that a program
/// that is only traced does not load it.
struct HeapLibrary {
  decltype(&spillway_allocate) allocate;
  decltype(&spillway_release) release;
  decltype(&spillway_last_error) last_error;
};

/// Loaded from libspillway.so beside this library; null if it cannot be used. Threads: safe.
const HeapLibrary* heap_library();
/// Why it cannot be used.
std::string heap_library_error();

/// The CUDA functions needed to serve memory for any stream; results are CUDA's numbers.
struct Context {
  int (*get_device)(int*);
  int (*synchronize)();
  int (*synchronize_stream)(void*);
};

/// These functions from the library that calls are forwarded to. Null before the first forwarded
/// call, and if they are missing.
/// Threads: safe.
const Context* context_of(Library library);

}  // namespace spillway::interpose
