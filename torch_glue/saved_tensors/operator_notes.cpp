// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/operator_notes.h"

#include "torch_glue/base/streams.h"
#include "torch_glue/saved_storage/skip.h"
#include "torch_glue/saved_tensors/operand_notes.h"
#include "torch_glue/saved_tensors/operator_calls.h"
#include "torch_glue/saved_tensors/pack_hook.h"

#include <ATen/ops/_fused_rms_norm_ops.h>
#include <ATen/ops/_softmax_ops.h>
#include <ATen/ops/cudnn_batch_norm_ops.h>
#include <ATen/ops/elu_ops.h>
#include <ATen/ops/leaky_relu_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>
#include <ATen/ops/native_dropout_ops.h>
#include <ATen/ops/native_group_norm_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/tanh_ops.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <tuple>
#include <utility>

namespace spillway {
namespace {

using OptionalTensor = std::optional<at::Tensor>;
using Note = std::shared_ptr<const OperatorNote>;

thread_local Note current;

class Noted {
 public:
  explicit Noted(OperatorNote note)
      : before_(std::exchange(current, std::make_shared<const OperatorNote>(std::move(note)))) {}

  ~Noted() { current = std::move(before_); }

  Noted(const Noted&) = delete;
  Noted& operator=(const Noted&) = delete;

 private:
  Note before_;
};

/// Of a normalization. Empty for a bias that wraps others, whose own operators follow.
OperatorNote normalized(double eps, const OptionalTensor& bias) {
  if (!bias || !bias->defined()) return {.eps = eps};
  if (is_wrapper(*bias)) return {};
  auto handle = make_pooled<PackHook>(nullptr);
  handle->call_pack_hook(*bias);
  return {.eps = eps, .bias = std::move(handle)};
}

OperatorNote batch_normalized(double eps,
                              const OptionalTensor& bias,
                              const OptionalTensor& mean,
                              const OptionalTensor& var,
                              bool training) {
  OperatorNote note = normalized(eps, bias);
  if (!mean || !mean->defined() || !var || !var->defined()) return note;
  note.statistics = mean->scalar_type();
  if (!training && !is_wrapper(*mean) && !is_wrapper(*var)) {
    const at::NoGradGuard no_graph;
    note.mean = mean->clone();
    note.var = var->clone();
  }
  return note;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm(c10::DispatchKeySet keys,
                                                          const at::Tensor& input,
                                                          c10::SymIntArrayRef shape,
                                                          const OptionalTensor& weight,
                                                          const OptionalTensor& bias,
                                                          double eps) {
  const Noted noted({.eps = eps});
  return at::_ops::native_layer_norm::redispatch(
      keys & kBehindNoting, input, shape, weight, bias, eps);
}

std::tuple<at::Tensor, at::Tensor> rms_norm(c10::DispatchKeySet keys,
                                            const at::Tensor& input,
                                            at::IntArrayRef shape,
                                            const OptionalTensor& weight,
                                            std::optional<double> eps) {
  const Noted noted({.eps = eps});
  return at::_ops::_fused_rms_norm::redispatch(keys & kBehindNoting, input, shape, weight, eps);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> group_norm(c10::DispatchKeySet keys,
                                                          const at::Tensor& input,
                                                          const OptionalTensor& weight,
                                                          const OptionalTensor& bias,
                                                          c10::SymInt n,
                                                          c10::SymInt c,
                                                          c10::SymInt hw,
                                                          std::int64_t group,
                                                          double eps) {
  const Noted noted(normalized(eps, bias));
  return at::_ops::native_group_norm::redispatch(keys & kBehindNoting,
                                                 input,
                                                 weight,
                                                 bias,
                                                 std::move(n),
                                                 std::move(c),
                                                 std::move(hw),
                                                 group,
                                                 eps);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> batch_norm(c10::DispatchKeySet keys,
                                                          const at::Tensor& input,
                                                          const OptionalTensor& weight,
                                                          const OptionalTensor& bias,
                                                          const OptionalTensor& running_mean,
                                                          const OptionalTensor& running_var,
                                                          bool training,
                                                          double momentum,
                                                          double eps) {
  const Noted noted(batch_normalized(eps, bias, running_mean, running_var, training));
  return at::_ops::native_batch_norm::redispatch(keys & kBehindNoting,
                                                 input,
                                                 weight,
                                                 bias,
                                                 running_mean,
                                                 running_var,
                                                 training,
                                                 momentum,
                                                 eps);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> cudnn_batch_norm(
    c10::DispatchKeySet keys,
    const at::Tensor& input,
    const at::Tensor& weight,
    const OptionalTensor& bias,
    const OptionalTensor& running_mean,
    const OptionalTensor& running_var,
    bool training,
    double factor,
    double eps) {
  const Noted noted(batch_normalized(eps, bias, running_mean, running_var, training));
  return at::_ops::cudnn_batch_norm::redispatch(
      keys & kBehindNoting, input, weight, bias, running_mean, running_var, training, factor, eps);
}

OperatorNote given(const at::Tensor& input) {
  const c10::VariableVersion& version = input.unsafeGetTensorImpl()->version_counter();
  if (is_wrapper(input) || !version.enabled()) return {};
  return {.input_version = version.current_version()};
}

/// Whether vectorized kernels process it with the same vector width as new memory.
bool is_aligned(const at::Tensor& tensor) {
  constexpr std::uintptr_t kMaxAtOnce = 64;
  const auto offset = static_cast<std::uintptr_t>(tensor.storage_offset()) * tensor.itemsize();
  return (reinterpret_cast<std::uintptr_t>(tensor.storage().data()) + offset) % kMaxAtOnce == 0;
}

OperatorNote drawn(const at::Tensor& input, double p, std::optional<bool> train) {
  if (!train.value_or(true) || p <= 0 || p >= 1 || !input.is_cuda()) return {};
  if (is_wrapper(input) || input.is_nested() || input.layout() != at::kStrided) return {};
  // The assignment of random numbers to elements depends on the vector width.
  if (capturing() || !is_aligned(input)) return {};
  return {.drawn = OperatorNote::Drawn{p,
                                       RandomStart::of(input.device().index()),
                                       {input.sizes().begin(), input.sizes().end()},
                                       {input.strides().begin(), input.strides().end()},
                                       input.options()},
          .input_version = given(input).input_version};
}

std::tuple<at::Tensor, at::Tensor> dropout(c10::DispatchKeySet keys,
                                           const at::Tensor& input,
                                           double p,
                                           std::optional<bool> train) {
  const Noted noted(drawn(input, p, train));
  return at::_ops::native_dropout::redispatch(keys & kBehindNoting, input, p, train);
}

/// Of operators that save their result.
template <typename Operator>
at::Tensor of_one(c10::DispatchKeySet keys, const at::Tensor& input) {
  const Noted noted(given(input));
  return Operator::redispatch(keys & kBehindNoting, input);
}

template <typename Operator, typename... Options>
at::Tensor& result_in_place(c10::DispatchKeySet keys, at::Tensor& input, Options... options) {
  const Noted noted(given(input));
  return Operator::redispatch(keys & kBehindNoting, input, options...);
}

at::Tensor softmax(c10::DispatchKeySet keys,
                   const at::Tensor& input,
                   std::int64_t dim,
                   bool casts) {
  const Noted noted(given(input));
  return at::_ops::_softmax::redispatch(keys & kBehindNoting, input, dim, casts);
}

}  // namespace

const std::shared_ptr<const OperatorNote>& current_note() {
  return current;
}

void note_operators(bool wanted) {
  if (wanted) {
    [[maybe_unused]] static const auto* const kernels = [] {
      using torch::Library;
      auto* const everything = new Library(Library::IMPL, "_", kNotingKey, __FILE__, __LINE__);
      everything->fallback(torch::CppFunction::makeFallthrough());
      auto* const noting = new Library(Library::IMPL, "aten", kNotingKey, __FILE__, __LINE__);
      noting->impl("native_layer_norm", &layer_norm);
      noting->impl("_fused_rms_norm", &rms_norm);
      noting->impl("native_group_norm", &group_norm);
      noting->impl("native_batch_norm", &batch_norm);
      noting->impl("cudnn_batch_norm", &cudnn_batch_norm);
      noting->impl("native_dropout", &dropout);
      noting->impl("relu", &of_one<at::_ops::relu>);
      noting->impl("relu_", &result_in_place<at::_ops::relu_>);
      noting->impl("tanh", &of_one<at::_ops::tanh>);
      noting->impl("tanh_", &result_in_place<at::_ops::tanh_>);
      noting->impl("sigmoid", &of_one<at::_ops::sigmoid>);
      noting->impl("sigmoid_", &result_in_place<at::_ops::sigmoid_>);
      using Number = const at::Scalar&;
      noting->impl("leaky_relu_", &result_in_place<at::_ops::leaky_relu_, Number>);
      noting->impl("elu_", &result_in_place<at::_ops::elu_, Number, Number, Number>);
      noting->impl("_softmax", &softmax);
      note_operands(*noting);
      note_calls(*noting);
      return noting;
    }();
  }
  c10::impl::tls_set_dispatch_key_included(kNotingKey, wanted);
}

}  // namespace spillway
