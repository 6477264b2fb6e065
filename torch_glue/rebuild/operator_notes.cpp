// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/rebuild/operator_notes.h"

#include "torch_glue/compat.h"
#include "torch_glue/saved_tensors/pack_hook.h"
#include "torch_glue/saved_tensors/skip.h"
#include "torch_glue/streams.h"

#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/ops/_fused_rms_norm_ops.h>
#include <ATen/ops/_to_copy_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/cudnn_batch_norm_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>
#include <ATen/ops/native_dropout_ops.h>
#include <ATen/ops/native_group_norm_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>
#include <ATen/ops/relu_ops.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <array>
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

/// Of a normalization. Empty for a bias that stands for others, whose own operators follow.
OperatorNote normalized(double eps, const OptionalTensor& bias) {
  if (!bias || !bias->defined()) return {.eps = eps};
  if (is_wrapper(*bias)) return {};
  auto handle = std::make_shared<PackHook>(nullptr);
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
  const Noted noted(normalized(eps, bias));
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
  const Noted noted(batch_normalized(eps, bias, running_mean, running_var, training));
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
  const Noted noted(batch_normalized(eps, bias, running_mean, running_var, training));
  return at::_ops::cudnn_batch_norm::redispatch(
      keys & kBehind, input, weight, bias, running_mean, running_var, training, factor, eps);
}

OperatorNote drawn(const at::Tensor& input, double p, std::optional<bool> train) {
  if (!train.value_or(true) || p <= 0 || p >= 1 || !input.is_cuda()) return {};
  if (is_wrapper(input) || input.is_nested() || input.layout() != at::kStrided) return {};
  if (capturing()) return {};
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

std::uint32_t version_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

bool has_version(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->version_counter().enabled();
}

OperatorNote given(const at::Tensor& input) {
  if (is_wrapper(input) || !has_version(input)) return {};
  return {.input_version = version_of(input)};
}

at::Tensor relu(c10::DispatchKeySet keys, const at::Tensor& input) {
  const Noted noted(given(input));
  return at::_ops::relu::redispatch(keys & kBehind, input);
}

at::Tensor& relu_in_place(c10::DispatchKeySet keys, at::Tensor& input) {
  const Noted noted(given(input));
  return at::_ops::relu_::redispatch(keys & kBehind, input);
}

/// What the nodes of a thread's last results were given, of one kind of operator.
template <typename Given, std::size_t kMost>
class Latest {
 public:
  void add(const at::Tensor& result, Given given) {
    const auto& node = result.grad_fn();
    if (node == nullptr) return;
    last_[next_++ % kMost].emplace(Entry{compat::WeakNodePtr(node), node.get(), std::move(given)});
  }

  /// Null for a node of longer ago.
  [[nodiscard]] const Given* find(const torch::autograd::Node& node) const {
    for (const auto& entry : last_) {
      if (entry && entry->address == &node && !entry->node.expired()) return &entry->given;
    }
    return nullptr;
  }

 private:
  struct Entry {
    compat::WeakNodePtr node;
    const torch::autograd::Node* address;
    Given given;
  };

  std::array<std::optional<Entry>, kMost> last_;
  std::size_t next_ = 0;
};

/// A ReLU that ends a residual block comes right after its sum.
Latest<AddedVersions, 8>& sums() {
  thread_local Latest<AddedVersions, 8> those;
  return those;
}

struct Cast {
  c10::weak_intrusive_ptr<c10::TensorImpl> source;
  at::ScalarType type;
  std::uint32_t version;
};

/// What they gave is saved by what is computed next.
Latest<Cast, 16>& casts() {
  thread_local Latest<Cast, 16> those;
  return those;
}

at::Tensor to_copy(c10::DispatchKeySet keys,
                   const at::Tensor& self,
                   std::optional<at::ScalarType> dtype,
                   std::optional<at::Layout> layout,
                   std::optional<at::Device> device,
                   std::optional<bool> pinned,
                   bool non_blocking,
                   std::optional<at::MemoryFormat> format) {
  const bool known = self.is_cuda() && !is_wrapper(self) && has_version(self);
  const std::uint32_t version = known ? version_of(self) : 0;
  at::Tensor result = at::_ops::_to_copy::redispatch(
      keys & kBehind, self, dtype, layout, device, pinned, non_blocking, format);
  if (known && result.device() == self.device()) {
    using Weak = c10::weak_intrusive_ptr<c10::TensorImpl>;
    casts().add(result, {Weak(self.getIntrusivePtr()), self.scalar_type(), version});
  }
  return result;
}

/// The versions before the sum; none where nothing is to be learnt.
std::optional<AddedVersions> before(const at::Tensor& self, const at::Tensor& other) {
  for (const at::Tensor* tensor : {&self, &other}) {
    if (!tensor->is_cuda() || is_wrapper(*tensor) || !has_version(*tensor)) return std::nullopt;
  }
  return AddedVersions{version_of(self), version_of(other), 0};
}

at::Tensor add(c10::DispatchKeySet keys,
               const at::Tensor& self,
               const at::Tensor& other,
               const at::Scalar& alpha) {
  const auto versions = before(self, other);
  at::Tensor result = at::_ops::add_Tensor::redispatch(keys & kBehind, self, other, alpha);
  if (versions) sums().add(result, {versions->self, versions->other, version_of(result)});
  return result;
}

at::Tensor& add_in_place(c10::DispatchKeySet keys,
                         at::Tensor& self,
                         const at::Tensor& other,
                         const at::Scalar& alpha) {
  const auto versions = before(self, other);
  at::Tensor& result = at::_ops::add__Tensor::redispatch(keys & kBehind, self, other, alpha);
  if (versions) sums().add(result, {versions->self, versions->other, version_of(result)});
  return result;
}

}  // namespace

std::optional<AddedVersions> versions_of_sum(const torch::autograd::Node& node) {
  const AddedVersions* const versions = sums().find(node);
  return versions != nullptr ? std::optional(*versions) : std::nullopt;
}

std::optional<CastSource> source_of_cast(const torch::autograd::Node& node) {
  const Cast* const cast = casts().find(node);
  if (cast == nullptr) return std::nullopt;
  at::Tensor source(cast->source.lock());
  if (source.defined() && version_of(source) != cast->version) source.reset();
  return CastSource{std::move(source), cast->type, cast->version};
}

std::uint32_t version_of_result(const torch::autograd::Node& node) {
  const auto sum = versions_of_sum(node);
  return sum ? sum->result : 0;
}

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
      noting->impl("relu", &relu);
      noting->impl("relu_", &relu_in_place);
      noting->impl("_to_copy", &to_copy);
      noting->impl("add.Tensor", &add);
      noting->impl("add_.Tensor", &add_in_place);
      return noting;
    }();
  }
  c10::impl::tls_set_dispatch_key_included(kKey, wanted);
}

}  // namespace spillway
