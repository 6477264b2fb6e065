// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/wrapped.h"

#include <atomic>

namespace spillway {
namespace {

std::atomic<Unwrap> unwrap_of_python{nullptr};

}  // namespace

void set_unwrap(Unwrap unwrap) {
  unwrap_of_python = unwrap;
}

std::optional<WrappedTensor> unwrapped(const at::Tensor& tensor) {
  const Unwrap unwrap = unwrap_of_python;
  return unwrap == nullptr ? std::nullopt : unwrap(tensor);
}

}  // namespace spillway
