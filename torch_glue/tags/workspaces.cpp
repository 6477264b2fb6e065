// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/tags/workspaces.h"

#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"

#include <ATen/cuda/CUDAContextLight.h>

#include <mutex>
#include <shared_mutex>
#include <type_traits>

namespace spillway {
namespace {

/// From torch 2.15 on they are kept with their size.
template <typename Kept>
const at::DataPtr& memory_of(const Kept& kept) {
  if constexpr (std::is_same_v<Kept, at::DataPtr>) {
    return kept;
  } else {
    return kept.first;
  }
}

}  // namespace

void give_roles_to_workspaces() {
  static const TagId role = intern_tag("workspace/cublas");
  for (auto* const kept : {&at::cuda::cublas_handle_stream_to_workspace(),
                           &at::cuda::cublaslt_handle_stream_to_workspace()}) {
    const std::shared_lock lock(kept->mutex);
    for (const auto& each : kept->map) {
      const at::DataPtr& memory = memory_of(each.second);
      DeviceRuntime* const device =
          Runtime::instance().device_if_made(DeviceId{memory.device().index()});
      const driver::DevicePtr at(memory.get());
      if (device != nullptr && device->heap().owns(at)) device->give_role(at, role);
    }
  }
}

}  // namespace spillway
