// SPDX-License-Identifier: Apache-2.0
// A libcudart.so.13 whose functions record that they were called (stub_runtime_last) and return
// what stub_runtime_answer has set; what they write to is left as it is.
#define STUB_EXPORT extern "C" __attribute__((visibility("default")))

static const char* last = "";
static int result = 0;

STUB_EXPORT const char* stub_runtime_last() {
  return last;
}

STUB_EXPORT void stub_runtime_answer(int with) {
  result = with;
}

// Functions that the preload library does not wrap.
#define STUB_OTHER(symbol)   \
  STUB_EXPORT int symbol() { \
    last = #symbol;          \
    return result;           \
  }
STUB_OTHER(cudaSetDevice)
STUB_OTHER(cudaGetDevice)
STUB_OTHER(cudaPeekAtLastError)
STUB_OTHER(cudaNothingHasThis)

#define SPILLWAY_DRIVER(...)
#define SPILLWAY_RUNTIME(symbol, ...) \
  STUB_EXPORT int symbol() {          \
    last = #symbol;                   \
    return result;                    \
  }
#include "interpose/functions.inc"
