// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/TensorImpl.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/version.h>

#include <memory>

/// Everything that depends on the version of torch is in this file: a new minor version is ported
/// here. The virtual functions of Engine and CUDAAllocator are compiled in with `override`, so a
/// changed one does not compile.
#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR != 11
#error "torch_glue is written for torch 2.11: port torch_glue/compat.h and cuda_allocator.h first"
#endif

namespace spillway::compat {

using NodePtr = std::shared_ptr<torch::autograd::Node>;
using GraphTaskRef = const std::shared_ptr<torch::autograd::GraphTask>&;
using UnpackHookData = std::optional<std::pair<c10::SafePyObject, c10::SafePyObject>>;

/// The tensor that `view` is a differentiable view of, null where it is none.
inline const at::Tensor* view_base(const at::Tensor& view) {
  const auto* meta = torch::autograd::impl::get_view_autograd_meta(view);
  return meta != nullptr && meta->has_bw_view() ? &meta->get_backward_view().base_ : nullptr;
}

/// Tells counters apart: equal for tensors that share one version counter, null for inference
/// tensors. VariableVersion keeps its counter private and is nothing but the pointer to it.
inline const void* counter_identity(const c10::VariableVersion& version) {
  static_assert(sizeof(c10::VariableVersion) == sizeof(void*));
  return *reinterpret_cast<const void* const*>(&version);
}

}  // namespace spillway::compat
