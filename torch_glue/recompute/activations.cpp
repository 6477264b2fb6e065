// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/rules.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/generated/Functions.h>

namespace spillway {
namespace {

using Values = Recipe::Values;
namespace nodes = torch::autograd::generated;

/// A function of one tensor, which its node saves.
template <typename Node, typename Function>
void add_of_input(Rules& rules, Function function) {
  rules.add<Node>([function](const Node& node, Recipe& recipe) {
    recipe.needs(node.self_);
    recipe.computed_by([function](Values values) { return function(values[0]); });
  });
}

/// A function whose node saves its result: the rule is queried while it runs. Its input need not be
/// available.
template <typename Node, typename Function>
void add_of_result(Rules& rules, Function function) {
  rules.add_saved<Node>(&Node::result_, [function](const Node& node, Recipe& recipe) {
    const auto& note = current_note();
    if (note == nullptr || !note->input_version) return recipe.reject();
    recipe.needs_result(node.next_edge(0), *note->input_version);
    function(node, recipe);
  });
}

}  // namespace

void add_activations(Rules& rules) {
  using at::Tensor;
  add_of_result<nodes::ReluBackward0>(rules, [](const auto&, Recipe& recipe) {
    recipe.computed_by([](Values values) { return at::relu(values[0]); });
  });
  add_of_result<nodes::TanhBackward0>(rules, [](const auto&, Recipe& recipe) {
    recipe.computed_by([](Values values) { return at::tanh(values[0]); });
  });
  add_of_result<nodes::SigmoidBackward0>(rules, [](const auto&, Recipe& recipe) {
    recipe.computed_by([](Values values) { return at::sigmoid(values[0]); });
  });
  add_of_result<nodes::SoftmaxBackward0>(
      rules, [](const nodes::SoftmaxBackward0& node, Recipe& recipe) {
        const bool casts = node.input_metadata(0).dtype().toScalarType() != node.self_scalar_type;
        recipe.computed_by(
            [dim = node.dim, casts](Values values) { return at::_softmax(values[0], dim, casts); });
      });

  // In-place variants overwrite their input and save their result.
  add_of_result<nodes::LeakyReluBackward1>(
      rules, [](const nodes::LeakyReluBackward1& node, Recipe& recipe) {
        recipe.computed_by([slope = node.negative_slope](Values values) {
          return at::leaky_relu(values[0], slope);
        });
      });
  add_of_result<nodes::EluBackward1>(rules, [](const nodes::EluBackward1& node, Recipe& recipe) {
    recipe.computed_by([alpha = node.alpha, scale = node.scale, of_input = node.input_scale](
                           Values values) { return at::elu(values[0], alpha, scale, of_input); });
  });

  add_of_input<nodes::SiluBackward0>(rules, [](const Tensor& x) { return at::silu(x); });
  add_of_input<nodes::MishBackward0>(rules, [](const Tensor& x) { return at::mish(x); });
  add_of_input<nodes::HardswishBackward0>(rules, [](const Tensor& x) { return at::hardswish(x); });
  add_of_input<nodes::SinBackward0>(rules, [](const Tensor& x) { return at::sin(x); });
  add_of_input<nodes::CosBackward0>(rules, [](const Tensor& x) { return at::cos(x); });
  add_of_input<nodes::HardsigmoidBackward0>(rules,
                                            [](const Tensor& x) { return at::hardsigmoid(x); });

  rules.add<nodes::GeluBackward0>([](const nodes::GeluBackward0& node, Recipe& recipe) {
    recipe.needs(node.self_);
    recipe.computed_by(
        [kind = node.approximate](Values values) { return at::gelu(values[0], kind); });
  });
  rules.add<nodes::LeakyReluBackward0>([](const nodes::LeakyReluBackward0& node, Recipe& recipe) {
    recipe.needs(node.self_);
    recipe.computed_by(
        [slope = node.negative_slope](Values values) { return at::leaky_relu(values[0], slope); });
  });
  rules.add<nodes::HardtanhBackward0>([](const nodes::HardtanhBackward0& node, Recipe& recipe) {
    recipe.needs(node.self_);
    recipe.computed_by([least = node.min_val, most = node.max_val](Values values) {
      return at::hardtanh(values[0], least, most);
    });
  });
  rules.add<nodes::EluBackward0>([](const nodes::EluBackward0& node, Recipe& recipe) {
    recipe.needs(node.self_);
    recipe.computed_by([alpha = node.alpha, scale = node.scale, of_input = node.input_scale](
                           Values values) { return at::elu(values[0], alpha, scale, of_input); });
  });
  rules.add<nodes::SoftplusBackward0>([](const nodes::SoftplusBackward0& node, Recipe& recipe) {
    recipe.needs(node.self_);
    recipe.computed_by([beta = node.beta, threshold = node.threshold](Values values) {
      return at::softplus(values[0], beta, threshold);
    });
  });
  rules.add<nodes::GluBackward0>([](const nodes::GluBackward0& node, Recipe& recipe) {
    recipe.needs(node.self_);
    recipe.computed_by([dim = node.dim](Values values) { return at::glu(values[0], dim); });
  });
}

}  // namespace spillway
