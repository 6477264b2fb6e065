// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>
#include <c10/util/SmallVector.h>

namespace spillway::operators {

/// True for a strided tensor; false for sparse and nested ones, which consist of strided tensors.
inline bool is_strided(const at::Tensor& tensor) {
  return tensor.layout() == at::kStrided && !tensor.is_nested() && tensor.has_storage();
}

/// The strided tensors of a tensor: indices and values of a sparse one, the buffer of a nested one.
using Parts = c10::SmallVector<at::Tensor, 3>;

/// Errors: raises if the layout is unknown; `name` is the operator, for the text.
Parts parts_of(const at::Tensor& tensor, const char* name);

/// A tensor like `like` that consists of `parts`, on their device.
at::Tensor assemble(const at::Tensor& like, const Parts& parts);

/// Rebuilds `tensor` from `parts` after an operator has changed its counterpart `like` in place.
void reassemble(const at::Tensor& tensor, const at::Tensor& like, const Parts& parts);

/// Calls `visit` for the tensor, or for its strided parts.
template <class Visit>
void for_each_part(const at::Tensor& tensor, const char* name, Visit&& visit) {
  if (!tensor.defined() || is_strided(tensor)) {
    visit(tensor);
  } else {
    for (const at::Tensor& part : parts_of(tensor, name))
      visit(part);
  }
}

}  // namespace spillway::operators
