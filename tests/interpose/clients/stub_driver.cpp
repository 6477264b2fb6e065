// SPDX-License-Identifier: Apache-2.0
// A libcuda.so.1 that answers look-ups and does nothing else. A wrapped function records that it
// was called (stub_last) and returns what stub_answer has set; what it writes to is left as it is.
// With STUB_DRIVER_ENDS=1 the process ends, well, where a runtime asks for more than look-ups:
// NVIDIA's own checks of the driver are never begun.
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#define STUB_EXPORT extern "C" __attribute__((visibility("default")))

static const char* last = "";
static int result = 0;
static void (*during)() = nullptr;

STUB_EXPORT const char* stub_last() {
  return last;
}

STUB_EXPORT void stub_answer(int with) {
  result = with;
}

// The next call calls it, once, before it returns.
STUB_EXPORT void stub_during(void (*call)()) {
  during = call;
}

static int called(const char* name) {
  if (void (*const call)() = during; call != nullptr) {
    during = nullptr;
    call();
  }
  last = name;
  return result;
}

static void end_if_asked() {
  const char* ends = getenv("STUB_DRIVER_ENDS");
  if (ends != nullptr && std::strcmp(ends, "1") == 0) _exit(0);
}

// These are written out below.
#define cuGetProcAddress stub_unused_1
#define cuGetProcAddress_v2 stub_unused_2
#define cuGetExportTable stub_unused_3

#define SPILLWAY_DRIVER(symbol, ...) \
  STUB_EXPORT int symbol() {         \
    return called(#symbol);          \
  }
#define SPILLWAY_RUNTIME(...)
#include "interpose/functions.inc"

#undef cuGetProcAddress
#undef cuGetProcAddress_v2
#undef cuGetExportTable

STUB_EXPORT int cuMemAlloc() {  // of CUDA 2, with 32-bit addresses
  return called("cuMemAlloc");
}

STUB_EXPORT int stub_other() {
  return called("stub_other");
}

STUB_EXPORT int stub_older() {
  return called("stub_older");
}

STUB_EXPORT int cuInit(unsigned) {
  end_if_asked();
  return 0;
}

STUB_EXPORT int cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}

STUB_EXPORT int cuGetExportTable(const void**, const void*) {
  end_if_asked();
  return 500;
}

STUB_EXPORT int cuGetProcAddress_v2(
    const char* name, void** found, int version, unsigned long flags, int* status);

STUB_EXPORT int cuGetProcAddress(const char* name, void** found, int version, unsigned long flags) {
  return cuGetProcAddress_v2(name, found, version, flags, nullptr);
}

namespace {

struct Row {
  const char* base;
  int version;
  bool per_thread;
  bool has_counterpart;
  void* function;
};

const Row kRows[] = {
#define SPILLWAY_DRIVER_AS(symbol, base, version, suffix, per_thread, counterpart, ...) \
  {#base, version, per_thread, counterpart, reinterpret_cast<void*>(&symbol)},
#define SPILLWAY_RUNTIME(...)
#include "interpose/functions.inc"
};

void* find(const char* name, int version, bool per_thread) {
  const Row* best = nullptr;
  bool known = false;
  for (const Row& each : kRows) {
    if (std::strcmp(each.base, name) != 0) continue;
    known = true;
    if (each.version > version || (each.has_counterpart && each.per_thread != per_thread)) continue;
    if (best == nullptr || best->version < each.version) best = &each;
  }
  if (best != nullptr) return best->function;
  if (std::strcmp(name, "cuInit") == 0) return reinterpret_cast<void*>(&cuInit);
  if (std::strcmp(name, "cuDriverGetVersion") == 0)
    return reinterpret_cast<void*>(&cuDriverGetVersion);
  return reinterpret_cast<void*>(known ? &stub_older : &stub_other);
}

}  // namespace

int cuGetProcAddress_v2(
    const char* name, void** found, int version, unsigned long flags, int* status) {
  if (name == nullptr || found == nullptr || *name == '\0') return 1;
  if (std::strncmp(name, "cuNo", 4) == 0) {
    *found = nullptr;
    if (status != nullptr) *status = 1;
    return status != nullptr ? 0 : 500;
  }
  if (status != nullptr) *status = 0;
  *found = find(name, version, (flags & 2U) != 0);
  return 0;
}
