// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace spillway {

/// The layer that serves these functions in torch. It knows PyTorch's pools, observers and
/// profilers.
struct TorchMemory {
  void* (*allocate)(size_t size, int device, void* stream);
  void (*release)(void* at);
};

/// Installs the layer. `memory` is never freed. Threads: safe.
void serve_pluggable(const TorchMemory& memory);

/// Whether spillway_malloc has been called in this process without such a layer. Threads: safe.
bool pluggable_has_served();

}  // namespace spillway

/// The functions of PyTorch's CUDAPluggableAllocator. They do not depend on torch, yet throw the
/// exceptions that it expects.
extern "C" {

/// Memory for work on `stream`; null only for 0 bytes.
/// Threads: safe.
/// Errors: c10::OutOfMemoryError in a process with PyTorch, std::runtime_error otherwise and for
/// other errors.
__attribute__((visibility("default"))) void* spillway_malloc(size_t size, int device, void* stream);

/// Frees memory of spillway_malloc. `size` and `stream` are not read. If PyTorch's own allocator
/// takes the segments of a MemPool here and frees one, unused memory is returned to the driver at
/// once, as by cudaFree. PyTorch's allocator could not find it otherwise. Waits for the device
/// then.
__attribute__((visibility("default"))) void spillway_free(void* at,
                                                          size_t size,
                                                          int device,
                                                          void* stream);
}
