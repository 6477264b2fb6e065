// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/shapes/type_rules.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <optional>

namespace spillway::operators {
namespace {

/// `arguments`: a letter for each, as far as they matter.
///   S: floating or complex numbers, all of one type   s: of one type with the others
///   F: floating or complex numbers                    d: no floating or complex numbers
///   l: int64   i: int64 or int32   b: bool   .: anything
struct NamedRule {
  std::string_view name;
  std::string_view arguments;
};

constexpr NamedRule kTypeRules[] = {
    {"aten::_adaptive_avg_pool2d", "F"},
    {"aten::_addmm_activation", "SSS"},
    {"aten::_convolution", "SSS"},
    {"aten::_index_put_impl", "s.s"},
    {"aten::_log_softmax", "F"},
    {"aten::_softmax", "F"},
    {"aten::addbmm", "SSS"},
    {"aten::addmm", "SSS"},
    {"aten::addmv", "SSS"},
    {"aten::avg_pool2d", "F"},
    {"aten::baddbmm", "SSS"},
    {"aten::binary_cross_entropy", "SS"},
    {"aten::bincount", "d"},
    {"aten::bitwise_and", "dd"},
    {"aten::bitwise_not", "d"},
    {"aten::bitwise_or", "dd"},
    {"aten::bitwise_xor", "dd"},
    {"aten::bmm", "SS"},
    {"aten::convolution", "SSS"},
    {"aten::dot", "SS"},
    {"aten::elu", "F"},
    {"aten::gelu", "F"},
    {"aten::hardsigmoid", "F"},
    {"aten::hardswish", "F"},
    {"aten::index_add", "s.is"},
    {"aten::index_copy", "s.ls"},
    {"aten::index_fill", "..l"},
    {"aten::index_put", "s.s"},
    {"aten::index_select", "..i"},
    {"aten::leaky_relu", "F"},
    {"aten::log_sigmoid_forward", "F"},
    {"aten::masked_fill", ".b"},
    {"aten::masked_scatter", "sbs"},
    {"aten::max_pool2d_with_indices", "F"},
    {"aten::mish", "F"},
    {"aten::mm", "SS"},
    {"aten::mv", "SS"},
    {"aten::native_layer_norm", "F"},
    {"aten::nll_loss2d_forward", "SlS"},
    {"aten::nll_loss_forward", "SlS"},
    {"aten::silu", "F"},
    {"aten::softplus", "F"},
};

bool takes(char letter, at::ScalarType type) {
  const bool whole = c10::isIntegralType(type, /*includeBool=*/true);
  switch (letter) {
    case 'S':
    case 'F':
      return !whole;
    case 'd':
      return whole;
    case 'l':
      return type == at::kLong;
    case 'i':
      return type == at::kLong || type == at::kInt;
    case 'b':
      return type == at::kBool;
    default:
      return true;
  }
}

std::string_view wanted(char letter) {
  switch (letter) {
    case 'l':
      return "int64";
    case 'i':
      return "int64 or int32";
    default:
      return "bool";
  }
}

}  // namespace

TypeRule::TypeRule(const c10::OperatorHandle& op) {
  std::string_view base = op.operator_name().name;
  if (base.ends_with('_') && !base.ends_with("__")) base.remove_suffix(1);  // in place
  const auto* const known = std::find_if(std::begin(kTypeRules),
                                         std::end(kTypeRules),
                                         [&](const NamedRule& rule) { return rule.name == base; });
  // With a type of the result's own, which what is added has.
  const bool of_type = std::string_view(op.operator_name().overload_name).starts_with("dtype");
  if (known != std::end(kTypeRules) && !of_type) arguments_ = known->arguments;
}

void TypeRule::check(const c10::OperatorHandle& op, const c10::Stack& stack) const {
  std::optional<at::ScalarType> first;
  const std::string& name = op.operator_name().name;
  for (size_t i = 0; i < arguments_.size() && i < stack.size(); ++i) {
    if (!stack[i].isTensor() || !stack[i].toTensor().defined()) continue;
    // A single host number can be assigned to elements of any type.
    if (i > 0 && stack[i].toTensor().is_cpu() && stack[i].toTensor().numel() == 1) continue;
    const at::ScalarType type = stack[i].toTensor().scalar_type();
    const char letter = arguments_[i];
    const std::string& argument = op.schema().arguments()[i].name();
    if (letter == 'S' || letter == 'F' || letter == 'd') {
      TORCH_CHECK_NOT_IMPLEMENTED(
          takes(letter, type), name, ": not implemented for ", type, " on a GPU (", argument, ")");
    }
    TORCH_CHECK(
        takes(letter, type), name, ": expected ", wanted(letter), ", but ", argument, " is ", type);
    if (letter != 'S' && letter != 's') continue;
    if (!first) first = type;
    TORCH_CHECK(type == *first,
                name,
                ": expected one type, but ",
                argument,
                " is ",
                type,
                " beside ",
                *first);
  }
}

}  // namespace spillway::operators
