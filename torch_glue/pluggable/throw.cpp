// SPDX-License-Identifier: Apache-2.0
#include <c10/util/Exception.h>

/// Called by libspillway.so, which does not depend on torch, when memory runs out in a process with
/// PyTorch.
extern "C" __attribute__((visibility("default"))) void spillway_throw_out_of_memory(
    const char* text) {
  C10_THROW_ERROR(OutOfMemoryError, text);
}
