// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <sys/types.h>

#include <atomic>
#include <cstdint>

// An allocator for torch.cuda.memory.CUDAPluggableAllocator that does as little as one can.
namespace {

std::atomic<std::int64_t> calls[2];

}  // namespace

#define EXPORT __attribute__((visibility("default")))

extern "C" {

EXPORT void* plain_malloc(ssize_t bytes, int device, cudaStream_t /*stream*/) {
  ++calls[0];
  void* made = nullptr;
  const bool done =
      cudaSetDevice(device) == cudaSuccess &&
      cudaMalloc(&made, bytes > 0 ? static_cast<std::size_t>(bytes) : 1) == cudaSuccess;
  return done ? made : nullptr;
}

EXPORT void plain_free(void* at, ssize_t /*bytes*/, int device, cudaStream_t stream) {
  ++calls[1];
  // Nothing else may get the bytes while the stream still uses them.
  if (cudaSetDevice(device) == cudaSuccess && cudaStreamSynchronize(stream) == cudaSuccess)
    (void)cudaFree(at);
}

/// How often plain_malloc (0) or plain_free (1) was called.
EXPORT std::int64_t plain_calls(int which) {
  return calls[which];
}
}
