// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/DimVector.h>
#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <functional>
#include <optional>
#include <vector>

namespace spillway {

/// A tensor of a class that wraps others, such as a DTensor around its local part.
struct WrappedTensor {
  std::vector<at::Tensor> inner;
  /// Recreates the tensor, detached, around other tensors in place of `inner`. Called on any
  /// thread, any number of times; may be destroyed on any thread.
  std::function<at::Tensor(const std::vector<at::Tensor>&)> wrap;
};

/// Returns the tensors that a tensor wraps; none if it is not of such a class, or if the class
/// raises: its tensors then stay. Null for a program without Python, which has no such classes.
/// Threads: safe.
using Unwrap = std::optional<WrappedTensor> (*)(const at::Tensor& tensor);

/// Calls `ask`, which may run code of a tensor's Python class. Returns whether it has returned
/// normally. Exceptions of the class are dropped, except KeyboardInterrupt and similar ones.
using Attempt = bool (*)(c10::function_ref<void()> ask);

/// Threads: call once, before the first tensor is saved.
void set_python_classes(Unwrap unwrap, Attempt attempt);
std::optional<WrappedTensor> unwrapped(const at::Tensor& tensor);

/// The sizes of a tensor of any class; none if its class provides none, such as nested tensors.
at::DimVector sizes_or_none(const at::Tensor& tensor);

/// The detached tensor; the tensor itself if its class does not support detach.
at::Tensor detached_or_itself(const at::Tensor& tensor);

}  // namespace spillway
