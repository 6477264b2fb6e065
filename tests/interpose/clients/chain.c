// SPDX-License-Identifier: Apache-2.0
// Another interposer, as they are: passes on what it has counted, by RTLD_NEXT.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdlib.h>

static int calls;

int chain_calls(void);

int chain_calls(void) {
  return calls;
}

int cudaMalloc(void** out, size_t bytes);

int cudaMalloc(void** out, size_t bytes) {
  int (*next)(void**, size_t) = NULL;
  *(void**)(&next) = dlsym(RTLD_NEXT, "cudaMalloc");
  if (++calls > 100) abort();  // it found itself
  return next(out, bytes);
}
