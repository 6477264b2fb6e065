// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/tags/workspaces.h"

#include "allocator/runtime/runtime.h"
#include "allocator/tag/tag.h"
#include "torch_glue/base/compat.h"

#include <ATen/cuda/CUDAContextLight.h>

#include <mutex>
#include <shared_mutex>

namespace spillway {
void set_workspace_roles() {
  static const TagId role = intern_tag("workspace/cublas");
  for (auto* const kept : {&at::cuda::cublas_handle_stream_to_workspace(),
                           &at::cuda::cublaslt_handle_stream_to_workspace()}) {
    const std::shared_lock lock(kept->mutex);
    for (const auto& each : kept->map) {
      const at::DataPtr& memory = compat::workspace_memory(each.second);
      DeviceRuntime* const device =
          Runtime::instance().devices().if_made(DeviceId{memory.device().index()});
      const driver::DevicePtr at(memory.get());
      if (device != nullptr && device->heap().owns(at)) device->set_role(at, role);
    }
  }
}

}  // namespace spillway
