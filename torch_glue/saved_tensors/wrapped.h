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
  /// The tensor again, detached, around these in place of `inner`. Called on any thread, any number
  /// of times; may be destroyed on any thread.
  std::function<at::Tensor(const std::vector<at::Tensor>&)> wrap;
};

/// What a tensor wraps; nothing where it is of no such class. Null for a program without Python,
/// where there are no such classes, and where the class raises: its tensors stay. Threads: safe.
using Unwrap = std::optional<WrappedTensor> (*)(const at::Tensor& tensor);

/// Calls `ask`, which may run code of a tensor's Python class; whether it has returned. An
/// exception of the class is dropped, but not KeyboardInterrupt and its like.
using Attempt = bool (*)(c10::function_ref<void()> ask);

/// Threads: call once, before the first tensor is saved.
void set_python_classes(Unwrap unwrap, Attempt attempt);
std::optional<WrappedTensor> unwrapped(const at::Tensor& tensor);

/// The sizes of a tensor of any class; none where its class has no answer, as nested ones have.
at::DimVector sizes_or_none(const at::Tensor& tensor);

/// The tensor, detached; itself where its class does not allow that.
at::Tensor detached_or_itself(const at::Tensor& tensor);

}  // namespace spillway
