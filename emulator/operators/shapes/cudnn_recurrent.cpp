// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/shapes/cudnn_recurrent.h"

#include "emulator/operators/shapes/shape_rules.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/rnn_relu_native.h>
#include <ATen/ops/rnn_tanh_native.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace spillway::operators {
namespace {

enum Mode : int64_t { kRelu = 0, kTanh = 1, kLstm = 2, kGru = 3 };  // cuDNN's numbers

using Values = c10::ArrayRef<c10::IValue>;

/// The arguments of one of the two operators; the backward pass has the gradients and the output
/// before those of the layer.
struct Layer {
  at::Tensor input;
  std::vector<at::Tensor> weights;
  at::Tensor hx;
  at::Tensor cx;
  int64_t mode;
  int64_t hidden;
  int64_t projected;  // the width of a direction's output
  int64_t layers;
  bool batch_first;
  double dropout;
  bool train;
  int64_t directions;
  bool packed;

  Layer(Values arguments, size_t options)
      : input(arguments[0].toTensor()),
        weights(arguments[1].toTensorVector()),
        hx(arguments[4].toTensor()),
        cx(arguments[5].isTensor() ? arguments[5].toTensor() : at::Tensor()),
        mode(arguments[options].toInt()),
        hidden(arguments[options + 1].toInt()),
        projected(arguments[options + 2].toInt()),
        layers(arguments[options + 3].toInt()),
        batch_first(arguments[options + 4].toBool()),
        dropout(arguments[options + 5].toDouble()),
        train(arguments[options + 6].toBool()),
        directions(arguments[options + 7].toBool() ? 2 : 1),
        packed(!arguments[options + 8].toIntVector().empty()) {
    if (projected == 0) projected = hidden;
  }

  /// Steps of all sequences.
  [[nodiscard]] int64_t steps() const {
    return packed ? input.size(0) : input.size(0) * input.size(1);
  }

  /// For each step and direction: gates and cells of every layer, and the outputs of all layers but
  /// the last; for those that are dropped out a bit besides.
  [[nodiscard]] int64_t reserve() const {
    if (!train) return 0;
    constexpr int64_t kAlignment = 256;
    const int64_t kept = mode == kLstm ? 5 : mode == kGru ? 6 : 1;
    const int64_t row = steps() * directions * hidden;
    const int64_t masks = dropout > 0 ? (layers - 1) * row / 8 : 0;
    return (layers * kept + layers - 1) * row * input.element_size() + masks + kAlignment;
  }

  [[nodiscard]] at::Tensor output() const {
    const int64_t width = projected * directions;
    if (packed) return at::empty({input.size(0), width}, input.options());
    if (!batch_first) return at::empty({input.size(0), input.size(1), width}, input.options());
    return at::empty({input.size(1), input.size(0), width}, input.options()).transpose(0, 1);
  }

  [[nodiscard]] size_t scratch() const {
    const auto row = static_cast<size_t>(steps() * directions * hidden * input.element_size());
    const size_t transposed = batch_first && !packed ? input.nbytes() : 0;
    return transposed + row * 6 + row * static_cast<size_t>(layers - 1) * 5 / 2;
  }

  [[nodiscard]] double flops() const {
    double elements = 0;
    for (const at::Tensor& weight : weights)
      elements += weight.dim() == 2 ? static_cast<double>(weight.numel()) : 0;
    return 2 * elements * static_cast<double>(steps());
  }
};

constexpr size_t kForward = 6;  // where the options begin
constexpr size_t kBackward = 10;

at::Tensor like(const at::Tensor& tensor) {
  return tensor.defined() ? at::empty(tensor.sizes(), tensor.options()) : at::Tensor();
}

bool is_large(const at::Tensor& tensor) {
  return tensor.storage().nbytes() > kSmallBytes;
}

bool is_cudnns(const at::Tensor& input, at::TensorList weights) {
  constexpr std::array kTypes = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
  return std::find(kTypes.begin(), kTypes.end(), input.scalar_type()) != kTypes.end() &&
         input.numel() != 0 &&
         (is_large(input) || std::any_of(weights.begin(), weights.end(), is_large));
}

struct Options {
  Mode mode;
  bool has_biases;
  int64_t layers;
  double dropout;
  bool train;
  bool bidirectional;
  bool batch_first;
};

/// Under autocast cuDNN's layers compute in half precision, whatever type autocast has.
struct Call {
  at::Tensor input;
  std::vector<at::Tensor> weights;
  at::Tensor hx;
  at::Tensor cx;

  Call(const at::Tensor& given, at::TensorList parameters, at::TensorList states) {
    const bool casts = at::autocast::is_autocast_enabled(at::kCUDA);
    const auto cast = [&](const at::Tensor& tensor) {
      return casts ? at::autocast::cached_cast(at::kHalf, tensor, c10::DeviceType::CUDA) : tensor;
    };
    input = cast(given);
    for (const at::Tensor& weight : parameters)
      weights.push_back(cast(weight));
    hx = cast(states[0]);
    if (states.size() > 1) cx = cast(states[1]);
  }

  [[nodiscard]] auto run(const Options& options, at::IntArrayRef batch_sizes) const {
    const c10::impl::ExcludeDispatchKeyGuard cast_already(c10::autocast_dispatch_keyset);
    const int64_t count = options.layers * (options.bidirectional ? 2 : 1);
    const int64_t hidden = cx.defined() ? cx.size(2) : hx.size(2);
    const int64_t projected = hx.size(2) == hidden ? 0 : hx.size(2);
    return at::_cudnn_rnn(input,
                          weights,
                          static_cast<int64_t>(weights.size()) / count,
                          /*weight_buf=*/{},
                          hx,
                          cx.defined() ? std::optional(cx) : std::nullopt,
                          options.mode,
                          hidden,
                          projected,
                          options.layers,
                          options.batch_first,
                          options.dropout,
                          options.train,
                          options.bidirectional,
                          batch_sizes,
                          /*dropout_state=*/{});
  }
};

at::IntArrayRef sizes_of(const at::Tensor& batch_sizes) {
  return {batch_sizes.const_data_ptr<int64_t>(), static_cast<size_t>(batch_sizes.numel())};
}

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Two = std::tuple<at::Tensor, at::Tensor>;

Three lstm(const at::Tensor& input,
           at::TensorList hx,
           at::TensorList params,
           bool has_biases,
           int64_t layers,
           double dropout,
           bool train,
           bool bidirectional,
           bool batch_first) {
  if (!is_cudnns(input, params)) {
    return at::native::lstm(
        input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first);
  }
  const auto made =
      Call(input, params, hx)
          .run({kLstm, has_biases, layers, dropout, train, bidirectional, batch_first}, {});
  return {std::get<0>(made), std::get<1>(made), std::get<2>(made)};
}

Three lstm_packed(const at::Tensor& data,
                  const at::Tensor& batch_sizes,
                  at::TensorList hx,
                  at::TensorList params,
                  bool has_biases,
                  int64_t layers,
                  double dropout,
                  bool train,
                  bool bidirectional) {
  if (!is_cudnns(data, params)) {
    return at::native::lstm(
        data, batch_sizes, hx, params, has_biases, layers, dropout, train, bidirectional);
  }
  const auto made = Call(data, params, hx)
                        .run({kLstm, has_biases, layers, dropout, train, bidirectional, false},
                             sizes_of(batch_sizes));
  return {std::get<0>(made), std::get<1>(made), std::get<2>(made)};
}

using Composed = Two (*)(
    const at::Tensor&, const at::Tensor&, at::TensorList, bool, int64_t, double, bool, bool, bool);
using ComposedPacked = Two (*)(const at::Tensor&,
                               const at::Tensor&,
                               const at::Tensor&,
                               at::TensorList,
                               bool,
                               int64_t,
                               double,
                               bool,
                               bool);

template <Mode kMode, Composed kComposed>
Two layer(const at::Tensor& input,
          const at::Tensor& hx,
          at::TensorList params,
          bool has_biases,
          int64_t layers,
          double dropout,
          bool train,
          bool bidirectional,
          bool batch_first) {
  if (!is_cudnns(input, params)) {
    return kComposed(
        input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first);
  }
  const auto made =
      Call(input, params, hx)
          .run({kMode, has_biases, layers, dropout, train, bidirectional, batch_first}, {});
  return {std::get<0>(made), std::get<1>(made)};
}

template <Mode kMode, ComposedPacked kComposed>
Two packed_layer(const at::Tensor& data,
                 const at::Tensor& batch_sizes,
                 const at::Tensor& hx,
                 at::TensorList params,
                 bool has_biases,
                 int64_t layers,
                 double dropout,
                 bool train,
                 bool bidirectional) {
  if (!is_cudnns(data, params)) {
    return kComposed(
        data, batch_sizes, hx, params, has_biases, layers, dropout, train, bidirectional);
  }
  const auto made = Call(data, params, hx)
                        .run({kMode, has_biases, layers, dropout, train, bidirectional, false},
                             sizes_of(batch_sizes));
  return {std::get<0>(made), std::get<1>(made)};
}

template <auto kFunction>
c10::KernelFunction unboxed() {
  return c10::KernelFunction::makeFromUnboxedRuntimeFunction(kFunction);
}

}  // namespace

std::vector<std::pair<c10::OperatorName, c10::KernelFunction>> recurrent_layers() {
  return {
      {{"aten::lstm", "input"}, unboxed<&lstm>()},
      {{"aten::lstm", "data"}, unboxed<&lstm_packed>()},
      {{"aten::gru", "input"}, unboxed<&layer<kGru, &at::native::gru>>()},
      {{"aten::gru", "data"}, unboxed<&packed_layer<kGru, &at::native::gru>>()},
      {{"aten::rnn_tanh", "input"}, unboxed<&layer<kTanh, &at::native::rnn_tanh>>()},
      {{"aten::rnn_tanh", "data"}, unboxed<&packed_layer<kTanh, &at::native::rnn_tanh>>()},
      {{"aten::rnn_relu", "input"}, unboxed<&layer<kRelu, &at::native::rnn_relu>>()},
      {{"aten::rnn_relu", "data"}, unboxed<&packed_layer<kRelu, &at::native::rnn_relu>>()},
  };
}

bool is_cudnn_recurrent(std::string_view name) {
  return name == "aten::_cudnn_rnn" || name == "aten::_cudnn_rnn_backward";
}

void cudnn_recurrent(const c10::OperatorHandle& /*op*/, c10::Stack& stack) {
  const Layer layer(stack, kForward);
  int64_t weights = 0;
  for (const at::Tensor& weight : layer.weights)
    weights += weight.numel();
  // Modules keep their parameters in one piece for cuDNN, but not those in bfloat16.
  const bool in_pieces = layer.input.scalar_type() == at::kBFloat16;
  stack = {layer.output(),
           like(layer.hx),
           layer.cx.defined() ? like(layer.cx) : at::empty({0}, layer.input.options()),
           at::empty({layer.reserve()}, layer.input.options().dtype(at::kByte)),
           at::empty({in_pieces ? weights : 0}, layer.input.options())};
}

/// The gradients of the weights lie in one piece.
void cudnn_recurrent_backward(const c10::OperatorHandle& /*op*/, c10::Stack& stack) {
  const Layer layer(stack, kBackward);
  const auto wanted = stack[21].toBoolList();
  int64_t elements = 0;
  for (const at::Tensor& weight : layer.weights)
    elements += weight.numel();
  c10::List<at::Tensor> gradients;
  if (wanted.get(3)) {
    const at::Tensor all = at::empty({elements}, layer.input.options());
    int64_t from = 0;
    for (const at::Tensor& weight : layer.weights) {
      gradients.push_back(all.narrow(0, from, weight.numel()).view(weight.sizes()));
      from += weight.numel();
    }
  }
  at::Tensor input;
  if (wanted.get(0)) {
    const bool transposed = layer.batch_first && !layer.packed;
    input = transposed ? like(layer.input.transpose(0, 1)).transpose(0, 1) : like(layer.input);
  }
  stack = {input,
           wanted.get(1) ? like(layer.hx) : at::Tensor(),
           wanted.get(2) && layer.cx.defined() ? like(layer.cx) : at::Tensor(),
           gradients};
}

Scratch cudnn_recurrent_scratch(Values arguments) {
  return {Layer(arguments, kForward).scratch()};
}

Scratch cudnn_recurrent_backward_scratch(Values arguments) {
  return {Layer(arguments, kBackward).scratch()};
}

double cudnn_recurrent_flops(Values arguments) {
  return Layer(arguments, kForward).flops();
}

double cudnn_recurrent_backward_flops(Values arguments) {
  return 2 * Layer(arguments, kBackward).flops();
}

}  // namespace spillway::operators
