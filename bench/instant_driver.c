// SPDX-License-Identifier: Apache-2.0
// Preloaded before the emulated GPU: copies, events and waits return at once and do nothing, those
// of the driver and those of the runtime alike. What is left of a program's CPU time is the host's
// own work; what it computes is wrong.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

static int done(void) {
  return 0;
}

static void* address_of(int (*function)(void)) {
  void* address = NULL;
  memcpy(&address, &function, sizeof address);
  return address;
}

/// The emulated GPU's own function of this name gives Spillway its driver table.
void* spillway_emulator_proc_address(const char* name, int version);

void* spillway_emulator_proc_address(const char* name, int version) {
  static const char* const at_once[] = {
      "cuMemcpyHtoDAsync",
      "cuMemcpyDtoHAsync",
      "cuMemcpyBatchAsync",
      "cuStreamWaitEvent",
      "cuEventRecord",
      "cuEventQuery",
      "cuStreamIsCapturing",  // leaves the answer as the caller set it: no
      "cuThreadExchangeStreamCaptureMode",
  };
  for (size_t i = 0; i < sizeof at_once / sizeof at_once[0]; ++i) {
    if (strcmp(name, at_once[i]) == 0) return address_of(done);
  }
  void* const found = dlsym(RTLD_NEXT, "spillway_emulator_proc_address");
  void* (*next)(const char*, int) = NULL;
  memcpy(&next, &found, sizeof next);
  return next(name, version);
}

#define AT_ONCE(name) \
  int name(void);     \
  int name(void) {    \
    return 0;         \
  }
AT_ONCE(cudaMemcpyAsync)
AT_ONCE(cudaEventRecord)
AT_ONCE(cudaEventRecordWithFlags)
AT_ONCE(cudaStreamWaitEvent)
AT_ONCE(cudaEventQuery)
