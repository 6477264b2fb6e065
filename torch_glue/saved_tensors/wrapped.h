// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

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
/// where there are no such classes. Errors: what the class throws.
using Unwrap = std::optional<WrappedTensor> (*)(const at::Tensor& tensor);

void set_unwrap(Unwrap unwrap);
std::optional<WrappedTensor> unwrapped(const at::Tensor& tensor);

}  // namespace spillway
