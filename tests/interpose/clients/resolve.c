// SPDX-License-Identifier: Apache-2.0
// resolve DRIVER SHIM: linked to the driver, and looks it up on 8 threads at once. Every way to a
// wrapped function must lead to the shim's, and every call to the driver's function of that name.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { kThreads = 8, kRounds = 200, kNames = 6 };

int cuMemAlloc_v2(uint64_t* out, size_t bytes);
int cuMemFree_v2(uint64_t at);
const char* stub_last(void);

typedef int (*Get)(const char*, void**, int, unsigned long, int*);

static const char* const kSymbols[kNames] = {"cuMemAlloc_v2",
                                             "cuMemcpyHtoDAsync_v2",
                                             "cuMemcpyHtoDAsync_v2_ptsz",
                                             "cuLaunchKernel",
                                             "cuMemFree_v2",
                                             "cuGetProcAddress_v2"};
static pthread_barrier_t together;
static const char* driver;

static int ours(void* at, const char* shim) {
  Dl_info is;
  return at != NULL && dladdr(at, &is) != 0 && strstr(is.dli_fname, shim) != NULL;
}

static void* resolve(void* shim) {
  pthread_barrier_wait(&together);
  for (int round = 0; round < kRounds; ++round) {
    void* library = dlopen(driver, RTLD_NOW | RTLD_LOCAL);
    for (int i = 0; i < kNames; ++i) {
      if (!ours(dlsym(library, kSymbols[i]), shim)) return "a wrapped name is not the shim's";
    }
    if (ours(dlsym(library, "cuInit"), shim)) return "cuInit is wrapped";
    Get get = NULL;
    *(void**)(&get) = dlsym(library, "cuGetProcAddress_v2");
    void* found = NULL;
    int status = -1;
    if (get("cuLaunchKernel", &found, 7000, 2, &status) != 0 || status != 0 || !ours(found, shim)) {
      return "cuGetProcAddress_v2 gave another function";
    }
    uint64_t at = 4096;
    if (cuMemAlloc_v2(&at, 512) != 0 || cuMemFree_v2(at) != 0) return "a call failed";
    dlclose(library);
  }
  return NULL;
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  driver = argv[1];
  uint64_t at = 4096;
  if (cuMemAlloc_v2(&at, 512) != 0 || strcmp(stub_last(), "cuMemAlloc_v2") != 0) {
    return puts("a call by linkage did not reach the driver"), 1;
  }
  pthread_t threads[kThreads];
  pthread_barrier_init(&together, NULL, kThreads);
  for (int i = 0; i < kThreads; ++i)
    pthread_create(&threads[i], NULL, resolve, argv[2]);
  int failed = 0;
  for (int i = 0; i < kThreads; ++i) {
    void* why = NULL;
    pthread_join(threads[i], &why);
    if (why != NULL) failed = 1, puts(why);
  }
  uint64_t (*count)(const char*) = NULL;
  *(void**)(&count) = dlsym(RTLD_DEFAULT, "spillway_preload_count");
  const uint64_t calls = count == NULL ? 0 : count("cuMemAlloc_v2");
  if (calls != 1 + kThreads * kRounds || count("cuMemAlloc_v2_bytes") != 512 * calls) {
    failed = 1, printf("%lu calls were counted\n", (unsigned long)calls);
  }
  return failed;
}
