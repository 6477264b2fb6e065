// SPDX-License-Identifier: Apache-2.0
// What the preload library costs a call of the driver, beside the same call through the PLT that it
// does not wrap, and what it costs a look-up of a name that is not its own, beside the C library's
// dlsym. Starts itself under the library; prints nanoseconds, each the least of interleaved rounds,
// as JSON. All in one process: "counting" is the default, "recording" writes a trace, of which the
// file is only in "writing", what it takes a launch more.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { kRounds = 60, kCalls = 10000, kLookUps = 2000, kRings = 4, kRing = 16384 };

typedef int Launch(void*,
                   unsigned,
                   unsigned,
                   unsigned,
                   unsigned,
                   unsigned,
                   unsigned,
                   unsigned,
                   void*,
                   void**,
                   void**);
typedef int Copy(unsigned long long, const void*, size_t, void*);
typedef void* Look(void*, const char*);

Launch cuLaunchKernel;
Launch plain_launch;
Copy cuMemcpyHtoDAsync_v2;

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return 1e9 * (double)at.tv_sec + (double)at.tv_nsec;
}

// One function for each call, so that each goes through the PLT.
#define TIME_CALLS(name, call, calls)    \
  static double name(void) {             \
    const double begun = now();          \
    for (int i = 0; i < (calls); ++i) {  \
      call;                              \
      __asm__ volatile("" ::: "memory"); \
    }                                    \
    return (now() - begun) / (calls);    \
  }

static void* library;
static Look* c_dlsym;

TIME_CALLS(direct, plain_launch(0, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0), kCalls)
TIME_CALLS(wrapped, cuLaunchKernel(0, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0), kCalls)
TIME_CALLS(launches, cuLaunchKernel(0, 1, 1, 1, 32, 1, 1, 0, 0, 0, 0), kRings* kRing)
TIME_CALLS(copy, cuMemcpyHtoDAsync_v2(0, 0, 1, 0), kCalls)
TIME_CALLS(look_up, dlsym(library, "plain_launch"), kLookUps)
TIME_CALLS(plain_look_up, c_dlsym(library, "plain_launch"), kLookUps)

static void keep_least(double* least, double found) {
  if (*least == 0 || found < *least) *least = found;
}

static void* function(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  if (found == NULL)
    fprintf(stderr, "%s is missing: is the preload library there?\n", name), exit(1);
  return found;
}

static int measure(const char* driver) {
  int (*begin)(const char*) = NULL;
  int (*end)(void) = NULL;
  *(void**)(&begin) = function("spillway_preload_trace_begin");
  *(void**)(&end) = function("spillway_preload_trace_end");
  library = dlopen(driver, RTLD_NOW);
  *(void**)(&c_dlsym) = dlsym(dlopen("libc.so.6", RTLD_NOW), "dlsym");
  char path[] = "/tmp/preload_bench.XXXXXX";
  const int file = mkstemp(path);
  if (library == NULL || file < 0) return 1;
  close(file);
  double ns[7] = {0};
  for (int round = 0; round < kRounds; ++round) {
    keep_least(&ns[0], direct());
    keep_least(&ns[1], wrapped());
    if (begin(path) != 0) return 1;
    keep_least(&ns[2], wrapped());  // fits a ring: writing the file is not in it
    if (end() != 0) return 1;
    if (begin(path) != 0) return 1;
    keep_least(&ns[3], copy());
    if (end() != 0) return 1;
    if (begin(path) != 0) return 1;
    keep_least(&ns[4], launches());
    if (end() != 0) return 1;
    keep_least(&ns[5], plain_look_up());
    keep_least(&ns[6], look_up());
  }
  unlink(path);
  printf(
      "{\"direct\": %.3f, \"counting\": %.3f, \"recording\": %.3f, \"recording_copy\": %.3f, "
      "\"writing\": %.3f, \"plain_dlsym\": %.3f, \"dlsym\": %.3f}\n",
      ns[0],
      ns[1],
      ns[2],
      ns[3],
      ns[4] - ns[2],
      ns[5],
      ns[6]);
  return 0;
}

int main(int argc, char** argv) {
  if (argc > 1) return measure(DRIVER);
  setenv("LD_PRELOAD", SHIM, 1);
  char* again[] = {argv[0], "under the shim", NULL};
  execv("/proc/self/exe", again);
  return 1;
}
