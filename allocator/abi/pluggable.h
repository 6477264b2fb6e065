// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace spillway {

/// The layer for torch, where it serves these functions itself: it knows PyTorch's pools, observers
/// and profilers.
struct TorchMemory {
  void* (*allocate)(size_t size, int device, void* stream);
  void (*release)(void* at);
};

/// From now on. `memory` is never freed. Threads: safe.
void serve_pluggable(const TorchMemory& memory);

/// Whether spillway_malloc has been called in this process without such a layer. Threads: safe.
bool pluggable_has_served();

}  // namespace spillway

/// The functions of PyTorch's CUDAPluggableAllocator. They know nothing of torch, and throw what it
/// expects anyway.
extern "C" {

/// Memory for work on `stream`; null for 0 bytes only. Threads: safe.
/// Errors: c10::OutOfMemoryError in a process with PyTorch, std::runtime_error otherwise and for
/// what is not a lack of memory.
__attribute__((visibility("default"))) void* spillway_malloc(size_t size, int device, void* stream);

/// Frees what spillway_malloc allocated. `size` and `stream` are not read. Where PyTorch's own
/// allocator takes the segments of a MemPool here and frees one, unused memory is returned to the
/// driver at once, as by cudaFree: PyTorch's allocator would not find it. Waits for the device
/// then.
__attribute__((visibility("default"))) void spillway_free(void* at,
                                                          size_t size,
                                                          int device,
                                                          void* stream);
}
