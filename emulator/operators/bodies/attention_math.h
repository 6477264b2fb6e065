// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include <optional>

namespace spillway::operators {

/// Scaled dot product attention of (batch, heads, length, width) tensors.
struct Attention {
  at::Tensor query, key, value;
  std::optional<at::Tensor> bias;  // added to the scores
  double dropout = 0;
  bool causal = false;  // a query sees the keys up to its own position
  std::optional<double> scale;

  /// Number of query heads that share one key and value head.
  [[nodiscard]] int64_t group() const { return query.size(1) / key.size(1); }
};

struct AttentionForward {
  at::Tensor output, logsumexp;  // (batch, heads, length, width) and (batch, heads, length)
};

struct AttentionBackward {
  at::Tensor query, key, value, bias;
};

/// `noise` draws the dropout mask; none: the CPU's default generator.
AttentionForward attend(const Attention& a, const std::optional<at::Generator>& noise);

/// Requires: `noise` draws the same numbers again.
AttentionBackward attend_backward(const Attention& a,
                                  const at::Tensor& grad,
                                  const AttentionForward& forward,
                                  const std::optional<at::Generator>& noise,
                                  bool bias_wanted);

}  // namespace spillway::operators
