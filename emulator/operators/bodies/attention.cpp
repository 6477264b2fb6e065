// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/bodies/bodies.h"

#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

#include <cmath>
#include <limits>

// Scaled dot product attention: three CUDA operators (flash, memory-efficient, cuDNN) with one
// meaning and different signatures. What the CPU's fused kernel can do goes there; dropout, values
// of another width and the gradient of the bias are written out, step by step as PyTorch's unfused
// attention on the CPU does it.
namespace spillway::operators {
namespace {

struct Attention {
  at::Tensor query, key, value;
  std::optional<at::Tensor> bias;
  double dropout = 0;
  bool causal = false;
  std::optional<double> scale;

  [[nodiscard]] bool fused() const { return dropout == 0 && query.size(-1) == value.size(-1); }

  /// Query heads that share one key and value head.
  [[nodiscard]] int64_t group() const { return query.size(1) / key.size(1); }
};

struct Forward {
  at::Tensor output, logsumexp, ticket;
};

struct Backward {
  at::Tensor query, key, value, bias;
};

/// What forward and backward of the unfused form have in common.
struct Weights {
  at::Tensor query, key;  // scaled
  at::Tensor scores, softmax, noise;
  double root;  // of the scale
};

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

Forward attend(const Attention& a, const Draws& draws) {
  const at::Tensor unused = at::zeros({}, at::kLong);
  if (a.fused()) {
    auto [output, logsumexp] =
        at::_scaled_dot_product_flash_attention_for_cpu(a.query,
                                                        per_query_head(a.key, a.group()),
                                                        per_query_head(a.value, a.group()),
                                                        0.,
                                                        a.causal,
                                                        a.bias,
                                                        a.scale);
    return {output, logsumexp, unused};
  }
  Draws::Replayable numbers{unused, std::nullopt};
  if (a.dropout > 0) numbers = draws.replayable();
  const Weights w = weigh(a, numbers.generator);
  const at::Tensor weights = w.noise.defined() ? w.softmax * w.noise : w.softmax;
  const at::Tensor output =
      at::matmul(weights, per_query_head(a.value.to(math_type(a)), a.group()));
  // On a GPU the heads lie side by side: the transpose of a dense (batch, length, heads, width).
  return {output.to(a.query.scalar_type()).transpose(1, 2).contiguous().transpose(1, 2),
          w.scores.logsumexp(-1).to(at::kFloat),
          numbers.ticket};
}

Backward attend_backward(const Attention& a,
                         const at::Tensor& grad,
                         const Forward& forward,
                         bool bias_wanted) {
  if (a.fused() && !bias_wanted) {
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
  std::optional<at::Generator> generator;
  if (a.dropout > 0) generator = Draws::replay(forward.ticket);
  const Weights w = weigh(a, generator);
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
  Backward result{grad_query.to(a.query.scalar_type()),
                  per_key_head(grad_key, a.group()).to(a.key.scalar_type()),
                  per_key_head(grad_value, a.group()).to(a.value.scalar_type()),
                  {}};
  if (bias_wanted) result.bias = grad_scores.sum_to_size(a.bias->sizes()).to(a.bias->scalar_type());
  return result;
}

at::Tensor nothing() {
  return at::empty({0}, at::kLong);
}

/// Where an operator's arguments stand. Key and value follow the query; not every one has a bias.
struct Places {
  std::size_t query;
  std::optional<std::size_t> bias;
  std::size_t dropout;
  std::size_t causal;
  std::size_t scale;
};

Attention attention(const c10::Stack& s, const Places& at) {
  return {s[at.query].toTensor(),
          s[at.query + 1].toTensor(),
          s[at.query + 2].toTensor(),
          at.bias ? optional_tensor(s[*at.bias]) : std::nullopt,
          s[at.dropout].toDouble(),
          s[at.causal].toBool(),
          s[at.scale].toOptional<double>()};
}

void flash(c10::Stack& s, const Draws& draws) {
  const Attention a = attention(s, {.query = 0, .bias = {}, .dropout = 3, .causal = 4, .scale = 6});
  const Forward f = attend(a, draws);
  give_back(s,
            f.output,
            f.logsumexp,
            at::Tensor(),
            at::Tensor(),
            a.query.size(2),
            a.key.size(2),
            f.ticket,
            nothing(),
            nothing());
}

void flash_backward(c10::Stack& s, const Draws&) {
  const Attention a =
      attention(s, {.query = 1, .bias = {}, .dropout = 10, .causal = 11, .scale = 14});
  const Backward b = attend_backward(
      a, s[0].toTensor(), {s[4].toTensor(), s[5].toTensor(), s[12].toTensor()}, false);
  give_back(s, b.query, b.key, b.value);
}

void efficient(c10::Stack& s, const Draws& draws) {
  const Attention a = attention(s, {.query = 0, .bias = 3, .dropout = 5, .causal = 6, .scale = 7});
  const Forward f = attend(a, draws);
  give_back(s, f.output, f.logsumexp, f.ticket, at::zeros({}, at::kLong));
}

void efficient_backward(c10::Stack& s, const Draws&) {
  const Attention a =
      attention(s, {.query = 1, .bias = 4, .dropout = 9, .causal = 11, .scale = 12});
  const bool bias_wanted = a.bias && s[10].toBoolList()[3];
  const Backward b = attend_backward(
      a, s[0].toTensor(), {s[5].toTensor(), s[6].toTensor(), s[7].toTensor()}, bias_wanted);
  give_back(s, b.query, b.key, b.value, b.bias);
}

void cudnn(c10::Stack& s, const Draws& draws) {
  const Attention a = attention(s, {.query = 0, .bias = 3, .dropout = 5, .causal = 6, .scale = 8});
  const Forward f = attend(a, draws);
  give_back(s,
            f.output,
            f.logsumexp,
            at::Tensor(),
            at::Tensor(),
            a.query.size(2),
            a.key.size(2),
            f.ticket,
            at::zeros({}, at::kLong),
            nothing());
}

void cudnn_backward(c10::Stack& s, const Draws&) {
  const Attention a =
      attention(s, {.query = 1, .bias = 8, .dropout = 13, .causal = 14, .scale = 15});
  const Backward b = attend_backward(
      a, s[0].toTensor(), {s[4].toTensor(), s[5].toTensor(), s[6].toTensor()}, false);
  give_back(s, b.query, b.key, b.value);
}

constexpr NamedBody kBodies[] = {
    {"aten::_scaled_dot_product_flash_attention", flash},
    {"aten::_scaled_dot_product_flash_attention_backward", flash_backward},
    {"aten::_scaled_dot_product_efficient_attention", efficient},
    {"aten::_scaled_dot_product_efficient_attention_backward", efficient_backward},
    {"aten::_scaled_dot_product_cudnn_attention", cudnn},
    {"aten::_scaled_dot_product_cudnn_attention_backward", cudnn_backward},
};

}  // namespace

c10::ArrayRef<NamedBody> attention_bodies() {
  return kBodies;
}

}  // namespace spillway::operators
