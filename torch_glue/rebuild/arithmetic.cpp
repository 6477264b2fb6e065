// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/rebuild/rules.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/generated/Functions.h>

namespace spillway {
namespace {

using Values = Recipe::Values;
namespace nodes = torch::autograd::generated;

}  // namespace

void add_arithmetic(Rules& rules) {
  rules.add<nodes::MulBackward0>([](const nodes::MulBackward0& node, Recipe& recipe) {
    recipe.needs(node.self_);
    recipe.needs(node.other_);
    recipe.computed_by([](Values values) { return at::mul(values[0], values[1]); });
  });
  rules.add<nodes::DivBackward0>([](const nodes::DivBackward0& node, Recipe& recipe) {
    recipe.needs(node.self_);
    recipe.needs(node.other_);
    recipe.computed_by([](Values values) { return at::div(values[0], values[1]); });
  });
  rules.add<nodes::PowBackward0>([](const nodes::PowBackward0& node, Recipe& recipe) {
    recipe.needs(node.self_);
    recipe.computed_by(
        [exponent = node.exponent](Values values) { return at::pow(values[0], exponent); });
  });

  // A sum saves nothing: what it was given must be at hand elsewhere, and have been as it is there.
  rules.add<nodes::AddBackward0>([](const nodes::AddBackward0& node, Recipe& recipe) {
    const auto versions = versions_of_sum(node);
    const auto type = node.input_metadata(0).dtype().toScalarType();
    if (!versions || node.self_scalar_type != type || node.other_scalar_type != type) {
      return recipe.impossible();
    }
    recipe.needs_result(node.next_edge(0), versions->self);
    recipe.needs_result(node.next_edge(1), versions->other);
    recipe.computed_by(
        [alpha = node.alpha](Values values) { return at::add(values[0], values[1], alpha); });
  });
}

}  // namespace spillway
