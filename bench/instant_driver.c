// SPDX-License-Identifier: Apache-2.0
// Preloaded before the emulated GPU: copies, events, waits and what asks for or sets a thread's
// state return at once and do nothing, those of the driver and those of the runtime alike. What is
// left of a program's CPU time is the host's own work; what it computes is wrong.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

static int done(void) {
  return 0;
}

static void* address_of(void (*function)(void)) {
  void* address = NULL;
  memcpy(&address, &function, sizeof address);
  return address;
}

static int (*push_context)(void*);

/// A thread's context is made current once and then left so: calls that are not listed need one.
static int push_context_once(void* context) {
  static _Thread_local void* current = NULL;
  if (current == context) return 0;
  const int result = push_context(context);
  if (result == 0) current = context;
  return result;
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
      "cuCtxPopCurrent",
      "cuStreamIsCapturing",  // leaves the answer as the caller set it: no
      "cuThreadExchangeStreamCaptureMode",
  };
  for (size_t i = 0; i < sizeof at_once / sizeof at_once[0]; ++i) {
    if (strcmp(name, at_once[i]) == 0) return address_of((void (*)(void))done);
  }
  void* const found = dlsym(RTLD_NEXT, "spillway_emulator_proc_address");
  void* (*next)(const char*, int) = NULL;
  memcpy(&next, &found, sizeof next);
  void* const address = next(name, version);
  if (address == NULL || strcmp(name, "cuCtxPushCurrent") != 0) return address;
  memcpy(&push_context, &address, sizeof push_context);
  return address_of((void (*)(void))push_context_once);
}

/// The emulated GPU follows the program's threads by their locks, which is the machine's work too.
int __pthread_mutex_lock(pthread_mutex_t* mutex);
int __pthread_mutex_unlock(pthread_mutex_t* mutex);

int pthread_mutex_lock(pthread_mutex_t* mutex) {
  return __pthread_mutex_lock(mutex);
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) {
  return __pthread_mutex_unlock(mutex);
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
AT_ONCE(cudaStreamIsCapturing)
AT_ONCE(cudaEventQuery)

/// One device, whatever has been set.
int cudaGetDevice(int* device);

int cudaGetDevice(int* device) {
  *device = 0;
  return 0;
}
