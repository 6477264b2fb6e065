// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/compiled/graph_operators.h"

#include "allocator/device/fork.h"
#include "torch_glue/saved_storage/region_options.h"
#include "torch_glue/saved_storage/skip.h"
#include "torch_glue/saved_tensors/graph_handle.h"
#include "torch_glue/saved_tensors/pack_hook.h"
#include "torch_glue/saved_tensors/region_stack.h"

#include <ATen/SavedTensorHooks.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <memory>
#include <optional>
#include <utility>

namespace spillway {
namespace {

/// The region of this thread. Null where autograd's hooks would not be Spillway's either.
const OffloadedRegion* region_of_graph() {
  const OffloadedRegion* const region = innermost_region();
  if (region == nullptr || in_forked_child()) return nullptr;
  const auto& python = at::SavedTensorDefaultHooks::get_tls_state();
  const bool other = python.is_tracing || python.stack.size() > region->python_hooks;
  return other ? nullptr : region;
}

/// Hooks for a tensor that a graph saves. Null if it stays.
std::unique_ptr<torch::autograd::SavedVariableHooks> packed(const at::Tensor& tensor) {
  const OffloadedRegion* const region = region_of_graph();
  if (region == nullptr) return nullptr;
  std::unique_ptr<torch::autograd::SavedVariableHooks> hooks;
  if (region->rules != nullptr) {
    if (!region->rules->apply_in_graphs()) return nullptr;
    hooks = region->rules->hooks();
    hooks->call_pack_hook(tensor);
  } else if (region->moves) {
    RegionOptions options = *region->moves;
    options.recompute = false;  // what a graph recomputes, its compiler has decided
    hooks = std::make_unique<PackHook>(&options);
    hooks->call_pack_hook(tensor);
  }
  return hooks;
}

at::Tensor save(const at::Tensor& tensor) {
  auto hooks = packed(tensor);
  return hooks != nullptr ? GraphHandle::of_packed(std::move(hooks), tensor.strides())
                          : GraphHandle::of_kept(tensor);
}

at::Tensor keep(const at::Tensor& tensor) {
  const OffloadedRegion* const region = region_of_graph();
  if (region != nullptr && region->moves)
    count_skip(region->moves->tag, SkipReason::kReferencedElsewhere, tensor);
  return GraphHandle::of_kept(tensor);
}

at::Tensor load(const at::Tensor& handle,
                c10::SymIntArrayRef /*size*/,
                at::ScalarType /*dtype*/,
                at::Device /*device*/) {
  return GraphHandle::saved_tensor(handle);
}

}  // namespace

void define_graph_operators() {
  static auto* const library = [] {
    auto* const defined =
        new torch::Library(torch::Library::DEF, "spillway", std::nullopt, __FILE__, __LINE__);
    defined->def("save(Tensor tensor) -> Tensor");
    defined->def("keep(Tensor tensor) -> Tensor");
    defined->def("load(Tensor handle, SymInt[] size, ScalarType dtype, Device device) -> Tensor");
    defined->impl("save", c10::DispatchKey::CUDA, &save);
    defined->impl("save", c10::DispatchKey::CPU, &save);  // stays
    defined->impl("keep", c10::DispatchKey::CUDA, &keep);
    defined->impl("load", c10::DispatchKey::CPU, &load);
    return defined;
  }();
  static_cast<void>(library);
}

}  // namespace spillway
