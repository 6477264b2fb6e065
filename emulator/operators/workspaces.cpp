// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/workspaces.h"

#include "emulator/operators/compat.h"
#include "emulator/operators/ledger.h"

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <mutex>
#include <shared_mutex>

namespace spillway::operators {

bool uses_cublas(std::string_view name) {
  constexpr std::string_view kProducts[] = {"aten::_addmm_activation",
                                            "aten::_int_mm",
                                            "aten::_scaled_mm",
                                            "aten::_scaled_mm_v2",
                                            "aten::addbmm",
                                            "aten::addmm",
                                            "aten::addmm_",
                                            "aten::addmv",
                                            "aten::addmv_",
                                            "aten::baddbmm",
                                            "aten::baddbmm_",
                                            "aten::bmm",
                                            "aten::dot",
                                            "aten::mm",
                                            "aten::vdot"};
  return std::find(std::begin(kProducts), std::end(kProducts), name) != std::end(kProducts);
}

at::DataPtr cublas_workspace(CUstream stream) {
  const std::size_t bytes = compat::workspace_bytes();
  const auto allocate = [bytes] {
    const AllocatesFor role(SPILLWAY_ROLE_WORKSPACE);
    return c10::cuda::CUDACachingAllocator::get()->allocate(bytes);
  };
  if (!compat::workspaces_stay()) return allocate();
  // PyTorch's own table, so that its own functions see and clear it. Its keys are a handle, of
  // which each thread has one for each device, and a stream.
  thread_local char handles[C10_COMPILE_TIME_MAX_GPUS];
  void* handle = &handles[c10::cuda::current_device()];
  auto& workspaces = at::cuda::cublas_handle_stream_to_workspace();
  const auto key = std::make_tuple(handle, static_cast<void*>(stream));
  {
    const std::shared_lock lock(workspaces.mutex);
    if (workspaces.map.contains(key)) return {};
  }
  at::DataPtr memory = allocate();
  const std::unique_lock lock(workspaces.mutex);
  workspaces.map.emplace(key, compat::kept_workspace(std::move(memory), bytes));
  return {};
}

}  // namespace spillway::operators
