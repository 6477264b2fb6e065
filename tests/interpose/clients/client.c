// SPDX-License-Identifier: Apache-2.0
// client SHIM EMULATOR [fork]: calls cudaMalloc and cudaFree once, here or in a forked child, and
// fails unless the shim and the emulator have then counted these numbers of cudaMalloc calls. "-":
// the library must not be in the process.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int cudaMalloc(void** out, size_t bytes);
int cudaFree(void* at);

enum { kBytes = 4096, kFailed = 1, kUsage = 2 };

typedef uint64_t (*Count)(const char*);

static int matches(const char* library,
                   const char* symbol,
                   const char* what,
                   const char* expected) {
  Count count = NULL;
  *(void**)(&count) = dlsym(RTLD_DEFAULT, symbol);
  char seen[32] = "-";
  if (count != NULL) snprintf(seen, sizeof seen, "%" PRIu64, count(what));
  printf("%s %s: %s, expected %s\n", library, what, seen, expected);
  return strcmp(seen, expected) == 0;
}

static int allocate_once(void) {
  void* at = NULL;
  return cudaMalloc(&at, kBytes) == 0 && at != NULL && cudaFree(at) == 0;
}

static int run(const char* shim, const char* emulator) {
  char bytes[32] = "-";
  if (*shim != '-') snprintf(bytes, sizeof bytes, "%d", kBytes * atoi(shim));
  int good = allocate_once();
  if (!good) puts("cudaMalloc or cudaFree failed");
  good &= matches("shim", "spillway_preload_count", "cudaMalloc", shim);
  good &= matches("shim", "spillway_preload_count", "cudaMalloc_bytes", bytes);
  good &= matches("emulator", "spillway_emulator_count", "cudaMalloc", emulator);
  fflush(stdout);
  return good ? 0 : kFailed;
}

int main(int argc, char** argv) {
  if (argc < 3) return kUsage;
  if (argc == 3) return run(argv[1], argv[2]);
  const pid_t child = fork();
  if (child < 0) return kFailed;
  if (child == 0) _exit(run(argv[1], argv[2]));
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return kFailed;
  return WEXITSTATUS(status);
}
