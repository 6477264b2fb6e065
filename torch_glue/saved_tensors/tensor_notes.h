// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <optional>

namespace spillway {

/// A tensor passed to an operator.
struct Source {
  at::Tensor tensor;  // undefined if it was freed or changed since
  at::ScalarType type;
  std::uint32_t version;  // when it was passed
};

[[nodiscard]] inline std::uint32_t version_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->version_counter().current_version();
}

/// A weak reference to a tensor that was passed.
class TensorNote {
 public:
  explicit TensorNote(const at::Tensor& given)
      : tensor_(given.getIntrusivePtr()), type_(given.scalar_type()), version_(version_of(given)) {}

  [[nodiscard]] Source source() const;

 private:
  c10::weak_intrusive_ptr<c10::TensorImpl> tensor_;
  at::ScalarType type_;
  std::uint32_t version_;
};

/// Notes the input of a cast, by the node of its result.
void note_cast(const at::Tensor& cast, TensorNote input);

/// Likewise of a cast without gradient, which therefore has no node. Its next product finds it.
void note_frozen_cast(const at::Tensor& cast, TensorNote input);

/// Notes the bias of a matrix product, by the product's node. `noted`: of `bias`, before the
/// product.
void note_bias(const at::Tensor& product, const at::Tensor& bias, TensorNote noted);

/// The input of a cast that this thread has just computed; none for an older node.
std::optional<Source> source_of_cast(const torch::autograd::Node& node);

/// The bias of a matrix product that this thread has just computed. If it was freed, the tensor
/// that it was cast from; `type` is the bias's. None for an older node.
std::optional<Source> bias_of_product(const torch::autograd::Node& node);

}  // namespace spillway
