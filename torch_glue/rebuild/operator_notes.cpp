// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/rebuild/operator_notes.h"

#include "torch_glue/saved_tensors/pack_hook.h"

#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/ops/_fused_rms_norm_ops.h>
#include <ATen/ops/cudnn_batch_norm_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>
#include <ATen/ops/native_dropout_ops.h>
#include <ATen/ops/native_group_norm_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <tuple>
#include <utility>

namespace spillway {
namespace {

/// A mode of the thread, in front of all that an operator meets, which nobody else's code uses.
constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;
constexpr c10::DispatchKeySet kBehind(c10::DispatchKeySet::FULL_AFTER, kKey);

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

std::shared_ptr<PackHook> kept(const OptionalTensor& tensor) {
  if (!tensor || !tensor->defined()) return nullptr;
  auto handle = std::make_shared<PackHook>(nullptr);
  handle->call_pack_hook(*tensor);
  return handle;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> layer_norm(c10::DispatchKeySet keys,
                                                          const at::Tensor& input,
                                                          c10::SymIntArrayRef shape,
                                                          const OptionalTensor& weight,
                                                          const OptionalTensor& bias,
                                                          double eps) {
  const Noted noted({.eps = eps});
  return at::_ops::native_layer_norm::redispatch(keys & kBehind, input, shape, weight, bias, eps);
}

std::tuple<at::Tensor, at::Tensor> rms_norm(c10::DispatchKeySet keys,
                                            const at::Tensor& input,
                                            at::IntArrayRef shape,
                                            const OptionalTensor& weight,
                                            std::optional<double> eps) {
  const Noted noted({.eps = eps});
  return at::_ops::_fused_rms_norm::redispatch(keys & kBehind, input, shape, weight, eps);
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
  const Noted noted({.eps = eps, .bias = kept(bias)});
  return at::_ops::native_group_norm::redispatch(
      keys & kBehind, input, weight, bias, std::move(n), std::move(c), std::move(hw), group, eps);
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
  const Noted noted({.eps = eps, .bias = kept(bias)});
  return at::_ops::native_batch_norm::redispatch(
      keys & kBehind, input, weight, bias, running_mean, running_var, training, momentum, eps);
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
  const Noted noted({.eps = eps, .bias = kept(bias)});
  return at::_ops::cudnn_batch_norm::redispatch(
      keys & kBehind, input, weight, bias, running_mean, running_var, training, factor, eps);
}

OperatorNote drawn(const at::Tensor& input, double p, std::optional<bool> train) {
  if (!train.value_or(true) || p <= 0 || p >= 1 || !input.is_cuda()) return {};
  if (c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None) {
    return {};  // each replay draws others
  }
  auto generator = at::cuda::detail::getDefaultCUDAGenerator(input.device().index());
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return {.drawn = OperatorNote::Drawn{p,
                                       generator.current_seed(),
                                       generator.get_offset(),
                                       {input.sizes().begin(), input.sizes().end()},
                                       {input.strides().begin(), input.strides().end()},
                                       input.options()}};
}

std::tuple<at::Tensor, at::Tensor> dropout(c10::DispatchKeySet keys,
                                           const at::Tensor& input,
                                           double p,
                                           std::optional<bool> train) {
  const Noted noted(drawn(input, p, train));
  return at::_ops::native_dropout::redispatch(keys & kBehind, input, p, train);
}

}  // namespace

const std::shared_ptr<const OperatorNote>& current_note() {
  return current;
}

void note_operators(bool wanted) {
  if (wanted) {
    [[maybe_unused]] static const auto* const kernels = [] {
      using torch::Library;
      auto* const everything = new Library(Library::IMPL, "_", kKey, __FILE__, __LINE__);
      everything->fallback(torch::CppFunction::makeFallthrough());
      auto* const noting = new Library(Library::IMPL, "aten", kKey, __FILE__, __LINE__);
      noting->impl("native_layer_norm", &layer_norm);
      noting->impl("_fused_rms_norm", &rms_norm);
      noting->impl("native_group_norm", &group_norm);
      noting->impl("native_batch_norm", &batch_norm);
      noting->impl("cudnn_batch_norm", &cudnn_batch_norm);
      noting->impl("native_dropout", &dropout);
      return noting;
    }();
  }
  c10::impl::tls_set_dispatch_key_included(kKey, wanted);
}

}  // namespace spillway
