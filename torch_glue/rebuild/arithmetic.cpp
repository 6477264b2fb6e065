// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/rebuild/rules.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/generated/Functions.h>

namespace spillway {
namespace {

using Values = Recipe::Values;
namespace nodes = torch::autograd::generated;

/// The same elements in the shape that the node gave.
template <typename Node>
void add_view(Rules& rules) {
  rules.add<Node>([](const Node& node, Recipe& recipe) {
    recipe.needs_result(node.next_edge(0));
    const auto sizes = node.input_metadata(0).shape_as_dim_vector();
    recipe.computed_by(
        [sizes = sizes.vec()](Values values) { return at::reshape_symint(values[0], sizes); });
  });
}

}  // namespace

void add_arithmetic(Rules& rules) {
  rules.add<nodes::MulBackward0>([](const nodes::MulBackward0& node, Recipe& recipe) {
    recipe.needs(node.self_, node.next_edge(0));
    recipe.needs(node.other_, node.next_edge(1));
    recipe.computed_by([](Values values) { return at::mul(values[0], values[1]); });
  });
  rules.add<nodes::DivBackward0>([](const nodes::DivBackward0& node, Recipe& recipe) {
    recipe.needs(node.self_, node.next_edge(0));
    recipe.needs(node.other_, node.next_edge(1));
    recipe.computed_by([](Values values) { return at::div(values[0], values[1]); });
  });
  rules.add<nodes::PowBackward0>([](const nodes::PowBackward0& node, Recipe& recipe) {
    recipe.needs(node.self_, node.next_edge(0));
    recipe.computed_by(
        [exponent = node.exponent](Values values) { return at::pow(values[0], exponent); });
  });

  // These save nothing: what they were given must be at hand elsewhere.
  rules.add<nodes::AddBackward0>([](const nodes::AddBackward0& node, Recipe& recipe) {
    recipe.needs_result(node.next_edge(0));
    recipe.needs_result(node.next_edge(1));
    recipe.computed_by(
        [alpha = node.alpha](Values values) { return at::add(values[0], values[1], alpha); });
  });
  rules.add<nodes::SubBackward0>([](const nodes::SubBackward0& node, Recipe& recipe) {
    recipe.needs_result(node.next_edge(0));
    recipe.needs_result(node.next_edge(1));
    recipe.computed_by(
        [alpha = node.alpha](Values values) { return at::sub(values[0], values[1], alpha); });
  });
  rules.add<nodes::NegBackward0>([](const nodes::NegBackward0& node, Recipe& recipe) {
    recipe.needs_result(node.next_edge(0));
    recipe.computed_by([](Values values) { return at::neg(values[0]); });
  });
  rules.add<nodes::ToCopyBackward0>([](const nodes::ToCopyBackward0& node, Recipe& recipe) {
    const auto& result = node.input_metadata(0);
    if (node.self_options.device() != result.device()) return recipe.impossible();
    recipe.needs_result(node.next_edge(0));
    recipe.computed_by([to = result.dtype().toScalarType()](Values values) {
      return at::_to_copy(values[0], at::TensorOptions().dtype(to));
    });
  });
  rules.add<nodes::CloneBackward0>([](const nodes::CloneBackward0& node, Recipe& recipe) {
    recipe.needs_result(node.next_edge(0));
    recipe.computed_by([](Values values) { return at::clone(values[0]); });
  });
  add_view<nodes::ViewBackward0>(rules);
  add_view<nodes::UnsafeViewBackward0>(rules);
  add_view<nodes::ReshapeAliasBackward0>(rules);
}

}  // namespace spillway
