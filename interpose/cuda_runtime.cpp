// SPDX-License-Identifier: Apache-2.0
#include "interpose/counts.h"
#include "interpose/edge.h"
#include "interpose/next.h"

#include <cuda_runtime_api.h>

#include <atomic>

#define SPILLWAY_EXPORT extern "C" __attribute__((visibility("default")))

namespace spillway::interpose {
namespace {

/// Passes a call on to the next definition, and counts it if it is the program's own.
/// Errors: cudaErrorSharedObjectSymbolNotFound where the process has no CUDA runtime.
template <Entry kEntry, typename... Arguments>
cudaError_t pass(const char* name, std::size_t bytes, Arguments... arguments) {
  using Function = cudaError_t(Arguments...);
  static std::atomic<Function*> next{nullptr};
  Function* function = next.load(std::memory_order_acquire);
  if (function == nullptr) {
    function = reinterpret_cast<Function*>(next_definition(name));
    if (function == nullptr) return cudaErrorSharedObjectSymbolNotFound;
    next.store(function, std::memory_order_release);
  }
  const Reentry here;
  if (here.observed()) count(kEntry, bytes);
  return function(arguments...);
}

}  // namespace
}  // namespace spillway::interpose

using spillway::interpose::Entry;
using spillway::interpose::pass;

SPILLWAY_EXPORT cudaError_t CUDARTAPI cudaMalloc(void** out, size_t bytes) {
  return pass<Entry::k_cudaMalloc>("cudaMalloc", bytes, out, bytes);
}

SPILLWAY_EXPORT cudaError_t CUDARTAPI cudaFree(void* at) {
  return pass<Entry::k_cudaFree>("cudaFree", 0, at);
}

SPILLWAY_EXPORT cudaError_t CUDARTAPI cudaMallocAsync(void** out,
                                                      size_t bytes,
                                                      cudaStream_t stream) {
  return pass<Entry::k_cudaMallocAsync>("cudaMallocAsync", bytes, out, bytes, stream);
}

SPILLWAY_EXPORT cudaError_t CUDARTAPI cudaFreeAsync(void* at, cudaStream_t stream) {
  return pass<Entry::k_cudaFreeAsync>("cudaFreeAsync", 0, at, stream);
}

SPILLWAY_EXPORT cudaError_t CUDARTAPI cudaHostAlloc(void** out, size_t bytes, unsigned int flags) {
  return pass<Entry::k_cudaHostAlloc>("cudaHostAlloc", bytes, out, bytes, flags);
}

SPILLWAY_EXPORT cudaError_t CUDARTAPI cudaFreeHost(void* at) {
  return pass<Entry::k_cudaFreeHost>("cudaFreeHost", 0, at);
}

SPILLWAY_EXPORT cudaError_t CUDARTAPI cudaMemcpyAsync(
    void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return pass<Entry::k_cudaMemcpyAsync>("cudaMemcpyAsync", bytes, to, from, bytes, kind, stream);
}
