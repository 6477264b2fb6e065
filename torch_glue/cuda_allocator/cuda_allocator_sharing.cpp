// SPDX-License-Identifier: Apache-2.0
// Tensors shared between processes: PyTorch transmits the handles, and keeps sent memory alive
// until the receiver has released it.
#include "torch_glue/base/check.h"
#include "torch_glue/cuda_allocator/cuda_allocator.h"

#include <c10/cuda/CUDAFunctions.h>

namespace spillway {

ccc::ShareableHandle SpillwayAllocator::shareIpcHandle(void* at) {
  DeviceRuntime* const runtime = owner(at);
  if (runtime == nullptr) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        false,
        "Spillway: the tensor at ",
        at,
        " cannot be shared with other processes: its memory is not in Spillway's heap. "
        "Send tensor.clone() instead.");
  }
  auto shared = runtime->exports().share(driver::DevicePtr(at));
  TORCH_CHECK_NOT_IMPLEMENTED(shared.status().code() != Code::kInvalidArgument,
                              "Spillway: this tensor cannot be shared with other processes: ",
                              shared.status().detail(),
                              ". Send tensor.cpu(), or put small tensors into one of more than 128 "
                              "KiB and send its views.");
  check(shared.status());
  return {static_cast<ptrdiff_t>(shared.value().offset.count()), shared.value().handle};
}

std::shared_ptr<void> SpillwayAllocator::getIpcDevPtr(std::string handle) {
  auto memory = device(c10::cuda::current_device()).imports().open(handle);
  TORCH_CHECK_VALUE(
      memory.status().code() != Code::kInvalidArgument, "Spillway: ", memory.status().detail());
  check(memory.status());
  return memory.value();
}

}  // namespace spillway
