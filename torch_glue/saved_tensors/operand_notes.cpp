// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/operand_notes.h"

#include "torch_glue/saved_storage/skip.h"
#include "torch_glue/saved_tensors/latest.h"
#include "torch_glue/saved_tensors/operator_calls.h"
#include "torch_glue/saved_tensors/tensor_notes.h"

#include <ATen/ops/_to_copy_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/hardsigmoid_ops.h>
#include <ATen/ops/hardswish_ops.h>
#include <ATen/ops/hardtanh_ops.h>
#include <ATen/ops/mish_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/rsub_ops.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/sub_ops.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <cstddef>
#include <utility>

namespace spillway {
namespace {

namespace nodes = torch::autograd::generated;

bool has_version(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->version_counter().enabled();
}

bool is_known(const at::Tensor& tensor) {
  return tensor.is_cuda() && !is_wrapper(tensor) && has_version(tensor);
}

/// A ReLU at the end of a residual block directly follows its sum. Attention follows the products
/// of its inputs, with their adapters.
Latest<OperandVersions, 32>& operands() {
  thread_local Latest<OperandVersions, 32> those;
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
  std::optional<TensorNote> source;
  const bool as_it_lies = !format || *format == at::MemoryFormat::Preserve;
  if (as_it_lies && is_known(self)) source.emplace(self);
  at::Tensor result = at::_ops::_to_copy::redispatch(
      keys & kBehindNoting, self, dtype, layout, device, pinned, non_blocking, format);
  if (!source || result.device() != self.device()) return result;
  if (result.grad_fn() != nullptr) {
    note_cast(result, std::move(*source));
  } else if (self.is_leaf() && at::GradMode::is_enabled()) {
    note_frozen_cast(result, std::move(*source));
  }
  return result;
}

/// The number from which Python created the tensor to add it; none for other tensors.
std::optional<at::Scalar> number_in(const at::Tensor& tensor) {
  if (!tensor.unsafeGetTensorImpl()->is_wrapped_number() || !tensor.is_cpu()) return std::nullopt;
  if (tensor.scalar_type() == at::kDouble) return *tensor.const_data_ptr<double>();
  if (tensor.scalar_type() == at::kLong) return *tensor.const_data_ptr<std::int64_t>();
  return std::nullopt;
}

/// The versions before the operator; none if they cannot be determined. Without a node the result's
/// version is that of an earlier operator, which did not compute the present contents.
std::optional<OperandVersions> before(const at::Tensor& self, const at::Tensor& other) {
  if (!at::GradMode::is_enabled() || !(self.requires_grad() || other.requires_grad())) return {};
  if (!is_known(self)) return std::nullopt;
  if (is_known(other)) return OperandVersions{version_of(self), version_of(other), 0};
  auto number = number_in(other);
  if (!number) return std::nullopt;
  return OperandVersions{version_of(self), 0, 0, std::move(number)};
}

std::optional<OperandVersions> before(const at::Tensor& self) {
  if (!at::GradMode::is_enabled() || !self.requires_grad() || !is_known(self)) return std::nullopt;
  return OperandVersions{version_of(self), 0, 0};
}

void note(std::optional<OperandVersions> before, const at::Tensor& result) {
  if (!before) return;
  before->result = version_of(result);
  add_first(operands(), result, std::move(*before));
}

/// Of a sum or a difference.
template <typename Operator>
at::Tensor sum(c10::DispatchKeySet keys,
               const at::Tensor& self,
               const at::Tensor& other,
               const at::Scalar& alpha) {
  auto versions = before(self, other);
  at::Tensor result = Operator::redispatch(keys & kBehindNoting, self, other, alpha);
  note(std::move(versions), result);
  return result;
}

template <typename Operator>
at::Tensor& sum_in_place(c10::DispatchKeySet keys,
                         at::Tensor& self,
                         const at::Tensor& other,
                         const at::Scalar& alpha) {
  auto versions = before(self, other);
  at::Tensor& result = Operator::redispatch(keys & kBehindNoting, self, other, alpha);
  note(std::move(versions), result);
  return result;
}

/// Of an operator that overwrites its operand. If the gradient needs the operand, autograd saves a
/// clone of it.
template <typename Operator, typename... Given>
at::Tensor& of_one_in_place(c10::DispatchKeySet keys, at::Tensor& self, Given... given) {
  auto versions = before(self);
  at::Tensor& result = Operator::redispatch(keys & kBehindNoting, self, given...);
  note(std::move(versions), result);
  return result;
}

template <typename Operator>
at::Tensor& of_two_in_place(c10::DispatchKeySet keys, at::Tensor& self, const at::Tensor& other) {
  auto versions = before(self, other);
  at::Tensor& result = Operator::redispatch(keys & kBehindNoting, self, other);
  note(std::move(versions), result);
  return result;
}

at::Tensor taken_from_number(c10::DispatchKeySet keys,
                             const at::Tensor& self,
                             const at::Scalar& other,
                             const at::Scalar& alpha) {
  auto versions = before(self);
  if (versions) versions->number = other;
  at::Tensor result = at::_ops::rsub_Scalar::redispatch(keys & kBehindNoting, self, other, alpha);
  note(std::move(versions), result);
  return result;
}

at::Tensor neg(c10::DispatchKeySet keys, const at::Tensor& self) {
  auto versions = before(self);
  at::Tensor result = at::_ops::neg::redispatch(keys & kBehindNoting, self);
  note(std::move(versions), result);
  return result;
}

/// Of an operator whose node saves the one of two tensors that the gradient of the other needs. A
/// number, which autograd saves as it is, has no version.
std::optional<OperandVersions> before_half(const at::Tensor& self, const at::Tensor& other) {
  if (!at::GradMode::is_enabled() || self.requires_grad() == other.requires_grad()) return {};
  const at::Tensor& unsaved = self.requires_grad() ? self : other;
  if (!is_known(unsaved)) return std::nullopt;
  const auto version = [&](const at::Tensor& each) {
    return has_version(each) ? version_of(each) : 0;
  };
  return OperandVersions{version(self), version(other), 0};
}

template <typename Operator>
at::Tensor of_two(c10::DispatchKeySet keys, const at::Tensor& self, const at::Tensor& other) {
  const auto versions = before_half(self, other);
  at::Tensor result = Operator::redispatch(keys & kBehindNoting, self, other);
  note(versions, result);
  return result;
}

at::Tensor addmm(c10::DispatchKeySet keys,
                 const at::Tensor& bias,
                 const at::Tensor& self,
                 const at::Tensor& other,
                 const at::Scalar& beta,
                 const at::Scalar& alpha) {
  const auto versions = before_half(self, other);
  std::optional<TensorNote> source;
  if (at::GradMode::is_enabled() && is_known(bias)) source.emplace(bias);
  at::Tensor result =
      at::_ops::addmm::redispatch(keys & kBehindNoting, bias, self, other, beta, alpha);
  note(versions, result);
  if (source) note_bias(result, bias, std::move(*source));
  return result;
}

/// `call`: of the node; null if there is none.
bool is_view(const torch::autograd::Node& node, const OperatorCall* call) {
  if (call != nullptr) return call->repeated->kind().is(RepeatedKind::kView);
  return typeid(node) == typeid(nodes::ViewBackward0) ||
         typeid(node) == typeid(nodes::ReshapeAliasBackward0);
}

}  // namespace

std::optional<OperandVersions> versions_of_operands(const torch::autograd::Node& node) {
  const OperandVersions* const versions = operands().find(node);
  return versions != nullptr ? std::optional(*versions) : std::nullopt;
}

std::uint32_t version_of_result(const torch::autograd::Node& node, std::uint32_t output) {
  const torch::autograd::Node* made = &node;
  auto call = call_of(*made);
  while (is_view(*made, call.get()) && made->next_edge(0).function != nullptr) {
    output = made->next_edge(0).input_nr;
    made = made->next_edge(0).function.get();
    call = call_of(*made);
  }
  if (const auto* leaf = dynamic_cast<const torch::autograd::AccumulateGrad*>(made)) {
    return version_of(leaf->variable);
  }
  if (const auto versions = versions_of_operands(*made)) return versions->result;
  return call != nullptr ? call->version_of_result(output) : 0;
}

void note_operands(torch::Library& noting) {
  noting.impl("_to_copy", &to_copy);
  noting.impl("add.Tensor", &sum<at::_ops::add_Tensor>);
  noting.impl("add_.Tensor", &sum_in_place<at::_ops::add__Tensor>);
  noting.impl("sub.Tensor", &sum<at::_ops::sub_Tensor>);
  noting.impl("sub_.Tensor", &sum_in_place<at::_ops::sub__Tensor>);
  noting.impl("rsub.Scalar", &taken_from_number);
  noting.impl("neg", &neg);
  noting.impl("silu_", &of_one_in_place<at::_ops::silu_>);
  noting.impl("mish_", &of_one_in_place<at::_ops::mish_>);
  noting.impl("hardswish_", &of_one_in_place<at::_ops::hardswish_>);
  noting.impl("hardsigmoid_", &of_one_in_place<at::_ops::hardsigmoid_>);
  noting.impl("hardtanh_",
              &of_one_in_place<at::_ops::hardtanh_, const at::Scalar&, const at::Scalar&>);
  noting.impl("gelu_", &of_one_in_place<at::_ops::gelu_, c10::string_view>);
  noting.impl("mul_.Tensor", &of_two_in_place<at::_ops::mul__Tensor>);
  noting.impl("div_.Tensor", &of_two_in_place<at::_ops::div__Tensor>);
  noting.impl("mul.Tensor", &of_two<at::_ops::mul_Tensor>);
  noting.impl("div.Tensor", &of_two<at::_ops::div_Tensor>);
  noting.impl("mm", &of_two<at::_ops::mm>);
  noting.impl("addmm", &addmm);
}

}  // namespace spillway
