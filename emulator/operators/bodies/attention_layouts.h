// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <limits>

namespace spillway::operators {

/// The memory formats of the attention operators' results on a GPU.

/// With the strides of `like`.
inline at::Tensor laid_out_like(const at::Tensor& result, const at::Tensor& like) {
  at::Tensor made = at::empty_like(like);
  return result.strides() == made.strides() ? result : made.copy_(result);
}

/// Heads side by side: the transpose of a dense (batch, length, heads, width).
inline at::Tensor with_heads_inside(const at::Tensor& result) {
  return result.transpose(1, 2).contiguous().transpose(1, 2);
}

constexpr int64_t kLogsumexpAlignment = 32;

/// The memory-efficient kernels pad the log-sum-exps to full vectors, or save none.
inline at::Tensor padded_logsumexp(const at::Tensor& logsumexp, int64_t length, bool wanted) {
  const int64_t whole = (length + kLogsumexpAlignment - 1) / kLogsumexpAlignment;
  at::Tensor made =
      at::full({logsumexp.size(0), logsumexp.size(1), wanted ? whole * kLogsumexpAlignment : 0},
               std::numeric_limits<float>::infinity(),
               at::kFloat);
  if (wanted) made.narrow(2, 0, logsumexp.size(2)).copy_(logsumexp);
  return made;
}

/// The gradient of a bias, whose rows the memory-efficient kernels align to 16 numbers.
inline at::Tensor with_aligned_rows(const at::Tensor& grad) {
  constexpr int64_t kNumbers = 16;
  if (!grad.defined()) return grad;
  auto shape = grad.sizes().vec();
  const int64_t width = shape.back();
  shape.back() = (width + kNumbers - 1) / kNumbers * kNumbers;
  return at::zeros(shape, grad.options()).narrow(-1, 0, width).copy_(grad);
}

}  // namespace spillway::operators
