// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/bodies/attention_math.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

#include <cmath>
#include <limits>

// Calls the CPU's fused kernel if it supports the call. Dropout, values of another width and the
// gradient of the bias are implemented step by step like PyTorch's unfused attention on the CPU.
namespace spillway::operators {
namespace {

/// The common part of forward and backward of the unfused form.
struct Weights {
  at::Tensor query, key;  // scaled
  at::Tensor scores, softmax, noise;
  double root;  // of the scale
};

bool fused(const Attention& a) {
  return a.dropout == 0 && a.query.size(-1) == a.value.size(-1);
}

at::Tensor per_query_head(const at::Tensor& tensor, int64_t group) {
  return group == 1 ? tensor : tensor.repeat_interleave(group, 1);
}

at::Tensor per_key_head(const at::Tensor& grad, int64_t group) {
  return group == 1 ? grad : grad.unflatten(1, {grad.size(1) / group, group}).sum(2);
}

/// The unfused form computes half types in float.
at::ScalarType math_type(const Attention& a) {
  const auto type = a.query.scalar_type();
  return type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;
}

Weights weigh(const Attention& a, const std::optional<at::Generator>& generator) {
  const auto type = math_type(a);
  const double scale = a.scale.value_or(1. / std::sqrt(static_cast<double>(a.query.size(-1))));
  Weights w;
  w.root = std::sqrt(std::abs(scale));
  w.query = a.query.to(type) * (scale < 0 ? -w.root : w.root);
  w.key = per_query_head(a.key.to(type), a.group()).transpose(-2, -1) * w.root;
  w.scores = at::matmul(w.query, w.key);
  if (a.causal) {
    const auto seen = at::ones({a.query.size(-2), a.key.size(-2)}, at::kBool).tril();
    w.scores.masked_fill_(seen.logical_not(), -std::numeric_limits<double>::infinity());
  }
  if (a.bias) w.scores.add_(a.bias->to(type));
  w.softmax = at::_safe_softmax(w.scores, -1);
  if (a.dropout > 0) {
    const double kept = 1 - a.dropout;
    w.noise = at::empty_like(w.softmax).bernoulli_(kept, generator).div_(kept);
  }
  return w;
}

}  // namespace

AttentionForward attend(const Attention& a, const std::optional<at::Generator>& noise) {
  if (fused(a)) {
    auto [output, logsumexp] =
        at::_scaled_dot_product_flash_attention_for_cpu(a.query,
                                                        per_query_head(a.key, a.group()),
                                                        per_query_head(a.value, a.group()),
                                                        0.,
                                                        a.causal,
                                                        a.bias,
                                                        a.scale);
    return {output, logsumexp};
  }
  const Weights w = weigh(a, noise);
  const at::Tensor weights = w.noise.defined() ? w.softmax * w.noise : w.softmax;
  const at::Tensor output =
      at::matmul(weights, per_query_head(a.value.to(math_type(a)), a.group()));
  return {output.to(a.query.scalar_type()), w.scores.logsumexp(-1)};
}

AttentionBackward attend_backward(const Attention& a,
                                  const at::Tensor& grad,
                                  const AttentionForward& forward,
                                  const std::optional<at::Generator>& noise,
                                  bool bias_wanted) {
  if (fused(a) && !bias_wanted) {
    auto [query, key, value] =
        at::_scaled_dot_product_flash_attention_for_cpu_backward(grad,
                                                                 a.query,
                                                                 per_query_head(a.key, a.group()),
                                                                 per_query_head(a.value, a.group()),
                                                                 forward.output,
                                                                 forward.logsumexp,
                                                                 0.,
                                                                 a.causal,
                                                                 a.bias,
                                                                 a.scale);
    return {query, per_key_head(key, a.group()), per_key_head(value, a.group()), {}};
  }
  const Weights w = weigh(a, noise);
  const at::Tensor g = grad.to(math_type(a));
  const at::Tensor value = per_query_head(a.value.to(math_type(a)), a.group());
  const at::Tensor weights = w.noise.defined() ? w.softmax * w.noise : w.softmax;
  at::Tensor grad_weights = at::matmul(g, value.transpose(-2, -1));
  if (w.noise.defined()) grad_weights = grad_weights * w.noise;
  const at::Tensor grad_scores =
      at::_softmax_backward_data(grad_weights, w.softmax, -1, w.softmax.scalar_type());
  const at::Tensor grad_query = at::matmul(grad_scores, w.key.transpose(-2, -1)) *
                                (a.scale.value_or(1) < 0 ? -w.root : w.root);
  const at::Tensor grad_key =
      (at::matmul(w.query.transpose(-2, -1), grad_scores) * w.root).transpose(-2, -1);
  const at::Tensor grad_value = at::matmul(weights.transpose(-2, -1), g);
  AttentionBackward result{grad_query.to(a.query.scalar_type()),
                           per_key_head(grad_key, a.group()).to(a.key.scalar_type()),
                           per_key_head(grad_value, a.group()).to(a.value.scalar_type()),
                           {}};
  if (bias_wanted) result.bias = grad_scores.sum_to_size(a.bias->sizes()).to(a.bias->scalar_type());
  return result;
}

}  // namespace spillway::operators
