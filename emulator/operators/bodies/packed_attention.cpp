// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/bodies/attention_layouts.h"
#include "emulator/operators/bodies/attention_math.h"
#include "emulator/operators/bodies/attention_tickets.h"
#include "emulator/operators/bodies/bodies.h"

#include <limits>

// The attention operators below scaled_dot_product_attention: (batch, length, heads, width)
// tensors, or sequences of different lengths one after the other, which begin at the offsets in two
// lists. Each sequence is computed on its own.
namespace spillway::operators {
namespace {

enum class Mask { kNone, kFromStart, kFromEnd };

/// How far a query sees to either side of its own position; nothing means all the way.
struct Window {
  Mask mask = Mask::kNone;
  std::optional<int64_t> left;
  std::optional<int64_t> right;
};

/// The sequences of a call, each (1, heads, length, width).
struct Sequences {
  std::vector<int64_t> queries;  // where each begins, and the end
  std::vector<int64_t> keys;
};

Sequences sequences(const std::optional<at::Tensor>& queries,
                    const std::optional<at::Tensor>& keys) {
  const auto list = [](const std::optional<at::Tensor>& ends) {
    std::vector<int64_t> made;
    if (!ends) return made;
    const at::Tensor numbers = ends->to(at::kLong).contiguous();
    made.assign(numbers.const_data_ptr<int64_t>(),
                numbers.const_data_ptr<int64_t>() + numbers.numel());
    return made;
  };
  return {list(queries), list(keys)};
}

at::Tensor piece(const at::Tensor& packed, const std::vector<int64_t>& starts, size_t i) {
  return packed.slice(0, starts[i], starts[i + 1]).transpose(0, 1).unsqueeze(0);
}

/// The positions that a window masks, as a bias of zeros and minus infinities; none if it masks
/// nothing.
std::optional<at::Tensor> bias_of(const Window& window, int64_t queries, int64_t keys) {
  const bool bounded = window.left.value_or(-1) >= 0 || window.right.value_or(-1) >= 0;
  if (window.mask == Mask::kNone && !bounded) return std::nullopt;
  const at::Tensor position =
      at::arange(queries).unsqueeze(1) + (window.mask == Mask::kFromStart ? 0 : keys - queries);
  const at::Tensor distance =
      at::arange(keys).unsqueeze(0) - position;  // to the right of the query
  at::Tensor hidden = at::zeros({queries, keys}, at::kBool);
  if (window.mask != Mask::kNone) hidden.logical_or_(distance > 0);
  if (window.left.value_or(-1) >= 0) hidden.logical_or_(distance < -*window.left);
  if (window.right.value_or(-1) >= 0) hidden.logical_or_(distance > *window.right);
  return at::zeros({queries, keys}, at::kFloat)
      .masked_fill_(hidden, -std::numeric_limits<double>::infinity());
}

/// A square, plainly causal window uses the CPU kernel's own option; any other window becomes a
/// bias.
void look_through(const Window& window, Attention& a) {
  const int64_t queries = a.query.size(2);
  const int64_t keys = a.key.size(2);
  const bool bounded = window.left.value_or(-1) >= 0 || window.right.value_or(-1) >= 0;
  const bool plain = window.mask == Mask::kFromStart || queries == keys;
  if (window.mask != Mask::kNone && !bounded && plain && !a.bias) {
    a.causal = true;
    return;
  }
  auto hidden = bias_of(window, queries, keys);
  if (!hidden) return;
  const at::Tensor shown = hidden->to(a.query.scalar_type());
  a.bias = a.bias ? *a.bias + shown : shown.view({1, 1, queries, keys});
}

/// A call of either operator, in this order of arguments.
struct Call {
  at::Tensor query, key, value;
  std::optional<at::Tensor> bias;
  Sequences packed;
  Window window;
  double dropout;
  std::optional<double> scale;

  [[nodiscard]] bool dense() const { return packed.queries.empty(); }

  [[nodiscard]] size_t count() const { return dense() ? 1 : packed.queries.size() - 1; }

  [[nodiscard]] Attention part(size_t i) const {
    Attention a{query, key, value, bias, dropout, false, scale};
    if (dense()) {
      for (at::Tensor* tensor : {&a.query, &a.key, &a.value})
        *tensor = tensor->transpose(1, 2);
    } else {
      a.query = piece(query, packed.queries, i);
      a.key = piece(key, packed.keys, i);
      a.value = piece(value, packed.keys, i);
    }
    look_through(window, a);
    return a;
  }
};

struct Results {
  at::Tensor output;
  std::vector<at::Tensor> logsumexps;  // by sequence: (batch or 1, heads, length)
};

Results run(const Call& call, const Noise& noise) {
  Results made;
  std::vector<at::Tensor> outputs;
  for (size_t i = 0; i < call.count(); ++i) {
    const AttentionForward f = attend(call.part(i), noise.generator);
    outputs.push_back(call.dense() ? f.output.transpose(1, 2) : f.output[0].transpose(0, 1));
    made.logsumexps.push_back(f.logsumexp.to(at::kFloat).contiguous());
  }
  made.output = outputs.size() == 1 ? outputs[0] : at::cat(outputs);
  return made;
}

/// `logsumexp(i)` as `Results` has it.
template <class Logsumexp>
AttentionBackward run_backward(const Call& call,
                               const at::Tensor& grad,
                               const at::Tensor& output,
                               const Logsumexp& logsumexp,
                               const std::optional<at::Generator>& noise,
                               bool bias_wanted) {
  std::vector<at::Tensor> query, key, value;
  at::Tensor bias;
  for (size_t i = 0; i < call.count(); ++i) {
    const auto of = [&](const at::Tensor& t) {
      return call.dense() ? t.transpose(1, 2) : piece(t, call.packed.queries, i);
    };
    const AttentionBackward b =
        attend_backward(call.part(i), of(grad), {of(output), logsumexp(i)}, noise, bias_wanted);
    const auto back = [&](const at::Tensor& t) {
      return call.dense() ? t.transpose(1, 2) : t[0].transpose(0, 1);
    };
    query.push_back(back(b.query));
    key.push_back(back(b.key));
    value.push_back(back(b.value));
    bias = b.bias;
  }
  const auto whole = [](const std::vector<at::Tensor>& parts, const at::Tensor& like) {
    return laid_out_like(parts.size() == 1 ? parts[0] : at::cat(parts), like);
  };
  return {whole(query, call.query), whole(key, call.key), whole(value, call.value), bias};
}

Window flash_window(bool causal, const c10::IValue& left, const c10::IValue& right) {
  return {causal ? Mask::kFromEnd : Mask::kNone,
          left.toOptional<int64_t>(),
          right.toOptional<int64_t>()};
}

void flash_varlen(c10::Stack& s, const Draws& draws) {
  TORCH_CHECK_NOT_IMPLEMENTED(!s[9].toBool() && !optional_tensor(s[13]) && !optional_tensor(s[14]),
                              "_flash_attention_forward: the emulated GPU does not support "
                              "return_debug_mask, seqused_k and "
                              "alibi_slopes. Leave them out, or run this part on the CPU.");
  const Call call{s[0].toTensor(),
                  s[1].toTensor(),
                  s[2].toTensor(),
                  {},
                  sequences(optional_tensor(s[3]), optional_tensor(s[4])),
                  flash_window(s[8].toBool(), s[11], s[12]),
                  s[7].toDouble(),
                  s[10].toOptional<double>()};
  const Noise noise = Noise::draw(call.dropout, draws);
  const Results made = run(call, noise);
  set_results(s,
              laid_out_like(made.output, call.query),
              call.dense() ? made.logsumexps[0] : at::cat(made.logsumexps, 2)[0],
              noise.pair(),
              at::empty({}, at::kUInt64),
              at::empty({0}, call.query.scalar_type()));
}

void flash_varlen_backward(c10::Stack& s, const Draws&) {
  // Cumulated lengths are not optional here: without sequences they are empty.
  const auto ends = [](const c10::IValue& value) {
    const auto given = optional_tensor(value);
    return given && given->numel() != 0 ? given : std::nullopt;
  };
  const Call call{s[1].toTensor(),
                  s[2].toTensor(),
                  s[3].toTensor(),
                  {},
                  sequences(ends(s[6]), ends(s[7])),
                  flash_window(s[11].toBool(), s[15], s[16]),
                  s[10].toDouble(),
                  s[14].toOptional<double>()};
  const at::Tensor logsumexp = s[5].toTensor();
  const AttentionBackward b = run_backward(
      call,
      s[0].toTensor(),
      s[4].toTensor(),
      [&](size_t i) {
        const auto& starts = call.packed.queries;
        return call.dense()
                   ? logsumexp
                   : logsumexp.slice(1, starts[i], starts[i + 1]).unsqueeze(0).contiguous();
      },
      Noise::again(call.dropout, s[12].toTensor()),
      false);
  set_results(s, b.query, b.key, b.value);
}

/// With sequences, memory-efficient attention has them in a batch of one.
struct Efficient {
  size_t query, bias, queries, dropout, mask, scale;
  std::optional<size_t> window;
};

Call efficient_call(const c10::Stack& s, const Efficient& at) {
  Call call{s[at.query].toTensor(),
            s[at.query + 1].toTensor(),
            s[at.query + 2].toTensor(),
            optional_tensor(s[at.bias]),
            sequences(optional_tensor(s[at.queries]), optional_tensor(s[at.queries + 1])),
            {static_cast<Mask>(s[at.mask].toInt()), {}, {}},
            s[at.dropout].toDouble(),
            s[at.scale].toOptional<double>()};
  // A window of n numbers is the query's own position and the n - 1 before it.
  const auto window = s[*at.window].toOptional<int64_t>();
  if (window && *window > 0) call.window.left = *window - 1;
  if (!call.dense()) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !call.bias,
        "_efficient_attention_forward: the emulated GPU does not support a bias for sequences of "
        "several lengths. Pad them, or leave the bias out.");
    for (at::Tensor* tensor : {&call.query, &call.key, &call.value})
      *tensor = tensor->squeeze(0);
  }
  return call;
}

at::Tensor batched(const at::Tensor& result, const Call& call) {
  return call.dense() || !result.defined() ? result : result.unsqueeze(0);
}

void efficient_varlen(c10::Stack& s, const Draws& draws) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !optional_tensor(s[12]),
      "_efficient_attention_forward: the emulated GPU does not support seqlen_k. Leave it out.");
  const Call call = efficient_call(
      s, {.query = 0, .bias = 3, .queries = 4, .dropout = 8, .mask = 9, .scale = 11, .window = 13});
  const int64_t longest_query =
      call.dense() ? call.query.size(1) : s[6].toOptional<int64_t>().value_or(0);
  const int64_t longest_key = s[7].toOptional<int64_t>().value_or(s[1].toTensor().size(1));
  const Noise noise = Noise::draw(call.dropout, draws);
  const Results made = run(call, noise);
  std::vector<at::Tensor> logsumexps;
  for (const at::Tensor& one : made.logsumexps)
    logsumexps.push_back(padded_logsumexp(one, longest_query, s[10].toBool()));
  set_results(s,
              batched(made.output, call).contiguous(),
              at::cat(logsumexps),
              noise.seed(),
              noise.offset(),
              longest_query,
              longest_key);
}

void efficient_varlen_backward(c10::Stack& s, const Draws&) {
  Call call = efficient_call(
      s,
      {.query = 1, .bias = 4, .queries = 6, .dropout = 11, .mask = 14, .scale = 16, .window = 18});
  const at::Tensor logsumexp = s[10].toTensor();
  const auto inner = [&](const at::Tensor& t) {
    return call.dense() ? t : t.squeeze(0);
  };
  const AttentionBackward b = run_backward(
      call,
      inner(s[0].toTensor()),
      inner(s[5].toTensor()),
      [&](size_t i) {
        if (call.dense()) return logsumexp.narrow(2, 0, call.query.size(1)).contiguous();
        const int64_t length = call.packed.queries[i + 1] - call.packed.queries[i];
        return logsumexp.slice(0, static_cast<int64_t>(i), static_cast<int64_t>(i) + 1)
            .narrow(2, 0, length)
            .contiguous();
      },
      Noise::again(call.dropout, s[12].toTensor(), s[13].toTensor()),
      call.bias && s[15].toBool());
  set_results(s,
              batched(b.query, call),
              batched(b.key, call),
              batched(b.value, call),
              with_aligned_rows(b.bias));
}

constexpr unsigned kPackedSeedAndOffset = 1U << 2U | 1U << 3U;

constexpr NamedBody kPackedAttentionBodies[] = {
    {"aten::_flash_attention_forward", flash_varlen},
    {"aten::_flash_attention_backward", flash_varlen_backward},
    {"aten::_efficient_attention_forward", efficient_varlen, kPackedSeedAndOffset},
    {"aten::_efficient_attention_backward", efficient_varlen_backward},
};

}  // namespace

c10::ArrayRef<NamedBody> packed_attention_bodies() {
  return kPackedAttentionBodies;
}

}  // namespace spillway::operators
