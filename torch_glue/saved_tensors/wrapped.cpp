// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/wrapped.h"

#include <atomic>

namespace spillway {
namespace {

std::atomic<Unwrap> unwrap_of_python{nullptr};
std::atomic<Attempt> attempt_of_python{nullptr};

}  // namespace

void set_python_classes(Unwrap unwrap, Attempt attempt) {
  unwrap_of_python = unwrap;
  attempt_of_python = attempt;
}

std::optional<WrappedTensor> unwrapped(const at::Tensor& tensor) {
  const Unwrap unwrap = unwrap_of_python;
  return unwrap == nullptr ? std::nullopt : unwrap(tensor);
}

at::DimVector sizes_or_none(const at::Tensor& tensor) {
  const auto* const impl = tensor.unsafeGetTensorImpl();
  if (tensor.is_nested() || impl->has_symbolic_sizes_strides()) return {};
  const Attempt attempt = attempt_of_python;
  if (attempt == nullptr || !impl->key_set().has(c10::DispatchKey::Python)) {
    return at::DimVector(tensor.sizes());
  }
  at::DimVector sizes;
  attempt([&] { sizes = at::DimVector(tensor.sizes()); });
  return sizes;
}

at::Tensor detached_or_itself(const at::Tensor& tensor) {
  const Attempt attempt = attempt_of_python;
  at::Tensor detached;
  if (attempt != nullptr && attempt([&] { detached = tensor.detach(); })) return detached;
  return tensor;
}

}  // namespace spillway
