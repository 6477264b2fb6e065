// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/bodies/attention_layouts.h"
#include "emulator/operators/bodies/attention_math.h"
#include "emulator/operators/bodies/attention_tickets.h"
#include "emulator/operators/bodies/bodies.h"

// Scaled dot product attention: three CUDA operators (flash, memory-efficient, cuDNN) with one
// meaning, and results of different shapes and layouts.
namespace spillway::operators {
namespace {

/// The indices of an operator's arguments. Key and value follow the query; not every operator has
/// a bias.
struct ArgumentIndices {
  size_t query;
  std::optional<size_t> bias;
  size_t dropout;
  size_t causal;
  size_t scale;
};

Attention attention(const c10::Stack& s, const ArgumentIndices& at) {
  return {s[at.query].toTensor(),
          s[at.query + 1].toTensor(),
          s[at.query + 2].toTensor(),
          at.bias ? optional_tensor(s[*at.bias]) : std::nullopt,
          s[at.dropout].toDouble(),
          s[at.causal].toBool(),
          s[at.scale].toOptional<double>()};
}

/// No attention weights were requested.
at::Tensor no_debug_mask(const at::Tensor& query) {
  return at::empty({0}, query.scalar_type());
}

void refuse_debug_mask(const c10::IValue& wanted) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !wanted.toBool(),
      "the emulated GPU does not return attention's debug mask. Pass return_debug_mask=False.");
}

void flash(c10::Stack& s, const Draws& draws) {
  const Attention a = attention(s, {.query = 0, .bias = {}, .dropout = 3, .causal = 4, .scale = 6});
  refuse_debug_mask(s[5]);
  const Noise noise = Noise::draw(a.dropout, draws);
  const AttentionForward f = attend(a, noise.generator);
  set_results(s,
              laid_out_like(f.output, a.query),
              f.logsumexp.to(at::kFloat).contiguous(),
              at::Tensor(),
              at::Tensor(),
              a.query.size(2),
              a.key.size(2),
              noise.pair(),
              at::empty({}, at::kUInt64),
              no_debug_mask(a.query));
}

void flash_backward(c10::Stack& s, const Draws&) {
  const Attention a =
      attention(s, {.query = 1, .bias = {}, .dropout = 10, .causal = 11, .scale = 14});
  const AttentionBackward b = attend_backward(a,
                                              s[0].toTensor(),
                                              {s[4].toTensor(), s[5].toTensor()},
                                              Noise::again(a.dropout, s[12].toTensor()),
                                              false);
  set_results(s,
              laid_out_like(b.query, a.query),
              laid_out_like(b.key, a.key),
              laid_out_like(b.value, a.value));
}

void efficient(c10::Stack& s, const Draws& draws) {
  const Attention a = attention(s, {.query = 0, .bias = 3, .dropout = 5, .causal = 6, .scale = 7});
  const Noise noise = Noise::draw(a.dropout, draws);
  const AttentionForward f = attend(a, noise.generator);
  set_results(s,
              with_heads_inside(f.output),
              padded_logsumexp(f.logsumexp, a.query.size(2), s[4].toBool()),
              noise.seed(),
              noise.offset());
}

void efficient_backward(c10::Stack& s, const Draws&) {
  const Attention a =
      attention(s, {.query = 1, .bias = 4, .dropout = 9, .causal = 11, .scale = 12});
  const bool bias_wanted = a.bias && s[10].toBoolList()[3];
  // None was saved if only the bias requires a gradient, which does not need it.
  at::Tensor logsumexp = s[6].toTensor();
  if (logsumexp.size(2) != 0) logsumexp = logsumexp.narrow(2, 0, a.query.size(2)).contiguous();
  const AttentionBackward b =
      attend_backward(a,
                      s[0].toTensor(),
                      {s[5].toTensor(), logsumexp},
                      Noise::again(a.dropout, s[7].toTensor(), s[8].toTensor()),
                      bias_wanted);
  set_results(s,
              with_heads_inside(b.query),
              with_heads_inside(b.key),
              with_heads_inside(b.value),
              with_aligned_rows(b.bias));
}

void cudnn(c10::Stack& s, const Draws& draws) {
  const Attention a = attention(s, {.query = 0, .bias = 3, .dropout = 5, .causal = 6, .scale = 8});
  refuse_debug_mask(s[7]);
  const Noise noise = Noise::draw(a.dropout, draws);
  const AttentionForward f = attend(a, noise.generator);
  const bool same_width = a.query.size(3) == a.value.size(3);
  set_results(s,
              same_width ? laid_out_like(f.output, a.query) : with_heads_inside(f.output),
              f.logsumexp.to(at::kFloat).contiguous().unsqueeze(-1),
              at::Tensor(),
              at::Tensor(),
              a.query.size(2),
              a.key.size(2),
              noise.seed(),
              noise.offset(),
              at::Tensor());
}

void cudnn_backward(c10::Stack& s, const Draws&) {
  const Attention a =
      attention(s, {.query = 1, .bias = 8, .dropout = 13, .causal = 14, .scale = 15});
  const AttentionBackward b =
      attend_backward(a,
                      s[0].toTensor(),
                      {s[4].toTensor(), s[5].toTensor().squeeze(-1)},
                      Noise::again(a.dropout, s[6].toTensor(), s[7].toTensor()),
                      false);
  set_results(s,
              laid_out_like(b.query, a.query),
              laid_out_like(b.key, a.key),
              laid_out_like(b.value, a.value));
}

// Seed and offset of memory-efficient attention are numbers on the host.
constexpr unsigned kSeedAndOffset = 1U << 2U | 1U << 3U;

constexpr NamedBody kAttentionBodies[] = {
    {"aten::_scaled_dot_product_flash_attention", flash},
    {"aten::_scaled_dot_product_flash_attention_backward", flash_backward},
    {"aten::_scaled_dot_product_efficient_attention", efficient, kSeedAndOffset},
    {"aten::_scaled_dot_product_efficient_attention_backward", efficient_backward},
    {"aten::_scaled_dot_product_cudnn_attention", cudnn},
    {"aten::_scaled_dot_product_cudnn_attention_backward", cudnn_backward},
};

}  // namespace

c10::ArrayRef<NamedBody> attention_bodies() {
  return kAttentionBodies;
}

}  // namespace spillway::operators
