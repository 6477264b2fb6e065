// SPDX-License-Identifier: Apache-2.0
// Traces that end while another thread calls the driver: `preload_end_trace FOLDER TRACES`. Prints
// of each how many calls that thread had made before the end.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

int cuMemsetD32_v2(unsigned long long at, unsigned value, size_t count);

enum { kRing = 16384 };  // as interpose/ring.h

static atomic_long done;
static atomic_int ended;

static void* call(void* unused) {
  while (!atomic_load_explicit(&ended, memory_order_relaxed)) {
    cuMemsetD32_v2(0, 0, 0);
    atomic_fetch_add_explicit(&done, 1, memory_order_relaxed);
  }
  return unused;
}

int main(int argc, char** argv) {
  int (*begin)(const char*) = NULL;
  int (*end)(void) = NULL;
  *(void**)(&begin) = dlsym(RTLD_DEFAULT, "spillway_preload_trace_begin");
  *(void**)(&end) = dlsym(RTLD_DEFAULT, "spillway_preload_trace_end");
  if (argc != 3 || begin == NULL || end == NULL) return 2;
  unsigned seed = 1;
  for (int trace = 0; trace < atoi(argv[2]); ++trace) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%d", argv[1], trace) >= (int)sizeof path) return 2;
    atomic_store(&ended, 0);
    atomic_store(&done, 0);
    if (begin(path) != 0) return 1;
    pthread_t thread;
    if (pthread_create(&thread, NULL, call, NULL) != 0) return 1;
    const long enough = kRing + rand_r(&seed) % (4 * kRing);
    while (atomic_load(&done) < enough)
      sched_yield();
    const long before = atomic_load(&done);
    if (end() != 0) return 1;
    printf("%ld\n", before);
    atomic_store(&ended, 1);
    pthread_join(thread, NULL);
  }
  return 0;
}
