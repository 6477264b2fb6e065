// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/operand_notes.h"
#include "torch_glue/saved_tensors/rules.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/generated/Functions.h>

namespace spillway {
namespace {

using Values = Recipe::Values;
namespace nodes = torch::autograd::generated;

/// A node of these saves only the operands that gradients need.
template <typename Node>
void add_of_two(Rules& rules, at::Tensor (*function)(const at::Tensor&, const at::Tensor&)) {
  rules.add<Node>([function](const Node& node, Recipe& recipe) {
    recipe.needs_operand(node, node.self_, 0, &OperandVersions::self);
    recipe.needs_operand(node, node.other_, 1, &OperandVersions::other);
    recipe.computed_by([function](Values values) { return function(values[0], values[1]); });
  });
}

/// A sum or a difference saves nothing: its operands must be available elsewhere, unchanged. For
/// two types the result has the wider one, unless it was computed in place.
template <typename Node, typename Function, typename InPlace>
void add_sum(Rules& rules, Function function, InPlace in_place) {
  rules.add<Node>([function, in_place](const Node& node, Recipe& recipe) {
    const auto versions = versions_of_operands(node);
    const auto type = node.input_metadata(0).dtype().toScalarType();
    if (!versions) return recipe.reject();
    recipe.needs_result(node.next_edge(0), versions->self);
    if (versions->number) {
      if (node.self_scalar_type != type) return recipe.reject();
      recipe.computed_by([function, number = *versions->number, alpha = node.alpha](Values values) {
        return function(values[0], number, alpha);
      });
      return;
    }
    recipe.needs_result(node.next_edge(1), versions->other);
    recipe.computed_by([function, in_place, type, alpha = node.alpha](Values values) {
      if (at::result_type(values[0], values[1]) == type) {
        return function(values[0], values[1], alpha);
      }
      const at::Tensor result = values[0].clone();
      in_place(result, values[1], alpha);
      return result;
    });
  });
}

}  // namespace

void add_arithmetic(Rules& rules) {
  add_of_two<nodes::MulBackward0>(rules, &at::mul);
  add_of_two<nodes::DivBackward0>(rules, &at::div);
  rules.add<nodes::PowBackward0>([](const nodes::PowBackward0& node, Recipe& recipe) {
    recipe.needs(node.self_);
    recipe.computed_by(
        [exponent = node.exponent](Values values) { return at::pow(values[0], exponent); });
  });

  add_sum<nodes::AddBackward0>(
      rules,
      [](const auto&... given) { return at::add(given...); },
      [](const at::Tensor& result, const auto&... given) { result.add_(given...); });
  add_sum<nodes::SubBackward0>(
      rules,
      [](const auto&... given) { return at::sub(given...); },
      [](const at::Tensor& result, const auto&... given) { result.sub_(given...); });
  rules.add<nodes::RsubBackward1>([](const nodes::RsubBackward1& node, Recipe& recipe) {
    const auto versions = versions_of_operands(node);
    const auto type = node.input_metadata(0).dtype().toScalarType();
    if (!versions || !versions->number || node.self_scalar_type != type) {
      return recipe.reject();
    }
    recipe.needs_result(node.next_edge(0), versions->self);
    recipe.computed_by([number = *versions->number, alpha = node.alpha](Values values) {
      return at::rsub(values[0], number, alpha);
    });
  });
  rules.add<nodes::NegBackward0>([](const nodes::NegBackward0& node, Recipe& recipe) {
    const auto versions = versions_of_operands(node);
    if (!versions) return recipe.reject();
    recipe.needs_result(node.next_edge(0), versions->self);
    recipe.computed_by([](Values values) { return at::neg(values[0]); });
  });
}

}  // namespace spillway
