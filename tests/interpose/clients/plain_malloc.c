// SPDX-License-Identifier: Apache-2.0
// A malloc of its own that looks the next one up with its first call, as jemalloc, tcmalloc and
// memory profilers do: a look-up must not need what it is there to find.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

static long calls;
static __thread int looking;

long plain_malloc_calls(void);

long plain_malloc_calls(void) {
  return calls;
}

void* malloc(size_t bytes) {
  static void* (*next)(size_t);
  if (next == NULL) {
    if (looking) abort();  // the look-up has asked for memory
    looking = 1;
    void* found = dlsym(RTLD_NEXT, "malloc");
    (void)dlsym(RTLD_DEFAULT, "cudaMalloc");
    looking = 0;
    *(void**)(&next) = found;
  }
  __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
  return next(bytes);
}
