// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <memory>

namespace spillway {

/// What a graph of torch.compile has in place of a tensor that it saves: a number on the CPU, whose
/// memory owns the saved tensor. It ends with the last tensor over that memory. It has as many
/// dimensions, all of one element, and the same strides.
/// Threads: as tensors. Ended without the Python lock.
class GraphHandle {
 public:
  /// `packed`: has packed the tensor.
  static at::Tensor of_packed(std::unique_ptr<torch::autograd::SavedVariableHooks> packed,
                              at::IntArrayRef strides);
  /// A tensor that stays.
  static at::Tensor of_kept(const at::Tensor& tensor);

  static bool is(const at::Tensor& tensor);

  /// The saved tensor, any number of times.
  /// Errors: c10::Error for another tensor, such as a copy of a handle; those of the unpack.
  static at::Tensor saved_tensor(const at::Tensor& handle);
};

}  // namespace spillway
