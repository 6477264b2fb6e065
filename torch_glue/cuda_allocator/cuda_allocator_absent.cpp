// SPDX-License-Identifier: Apache-2.0
// Functions that Spillway's allocator does not support, and access between devices.
#include "torch_glue/base/check.h"
#include "torch_glue/cuda_allocator/cuda_allocator.h"

namespace spillway {

void SpillwayAllocator::absent(const char* what) {
  C10_THROW_ERROR(NotImplementedError,
                  std::string("Spillway's CUDA allocator does not support ") + what +
                      " yet. Leave out spillway.use_allocator() to use PyTorch's own allocator: "
                      "spillway.CPUOffload works with both.");
}

void SpillwayAllocator::enable(bool on) {
  if (!on) absent("switching caching off (torch.cuda.caching_allocator_enable)");
}

std::vector<ccc::StreamSegmentSize> SpillwayAllocator::getExpandableSegmentSizes(c10::DeviceIndex) {
  return {};
}

void SpillwayAllocator::enablePeerAccess(c10::DeviceIndex reader, c10::DeviceIndex owner) {
  // CUDA's own switch does not affect mapped memory: each mapping has its own access rights.
  check(device(owner).enable_peer(DeviceId{reader}));
}

cudaError_t SpillwayAllocator::memcpyAsync(void* to,
                                           int to_device,
                                           const void* from,
                                           int from_device,
                                           size_t size,
                                           cudaStream_t stream,
                                           bool peer_access) {
  if (to_device == from_device || peer_access) {
    return cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToDevice, stream);
  }
  return cudaMemcpyPeerAsync(to, to_device, from, from_device, size, stream);
}

}  // namespace spillway
