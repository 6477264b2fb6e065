// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "interpose/entries.h"

#include <spillway/spillway.h>

#include <string>

namespace spillway::interpose {

/// The functions of libspillway.so that serve memory. It is opened when they are first needed, so
/// that a program that is only watched does not carry it.
struct HeapLibrary {
  decltype(&spillway_allocate) allocate;
  decltype(&spillway_release) release;
  decltype(&spillway_last_error) last_error;
};

/// From libspillway.so beside this library; null where it cannot be used. Threads: safe.
const HeapLibrary* heap_library();
/// Why it cannot.
std::string heap_library_error();

/// What memory for every stream needs of CUDA, as CUDA's own numbers for results.
struct Context {
  int (*get_device)(int*);
  int (*synchronize)();
  int (*synchronize_stream)(void*);
};

/// The functions that stand beside the ones that calls are passed on to; null before anything has
/// been passed on, and where they are missing. Threads: safe.
const Context* context_of(Library library);

}  // namespace spillway::interpose
