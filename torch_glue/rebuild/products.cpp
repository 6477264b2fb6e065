// SPDX-License-Identifier: Apache-2.0
// Products of matrices: dear beside what else is computed again, and still quicker than a link
// where their inner dimension is some thousands. Only plans for a budget ask for them.
#include "torch_glue/rebuild/rules.h"

#include <ATen/Functions.h>
#include <c10/core/SymIntArrayRef.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/generated/Functions.h>

namespace spillway {
namespace {

using Values = Recipe::Values;
namespace autograd = torch::autograd;
namespace nodes = torch::autograd::generated;

/// A bias that is a parameter, as it is now: its node saves nothing of it.
void needs_bias(const autograd::Edge& edge, Recipe& recipe) {
  const auto* const parameter = dynamic_cast<const autograd::AccumulateGrad*>(edge.function.get());
  if (parameter == nullptr || !parameter->variable.defined()) return recipe.impossible();
  const auto version = static_cast<std::uint32_t>(parameter->variable._version());
  recipe.needs_kept(parameter->variable, version);
}

}  // namespace

void add_products(Rules& rules) {
  rules.add_dear<nodes::MmBackward0>([](const nodes::MmBackward0& node, Recipe& recipe) {
    recipe.needs(node.self_);
    recipe.needs(node.mat2_);
    recipe.computed_by([](Values values) { return at::mm(values[0], values[1]); });
  });
  rules.add_dear<nodes::AddmmBackward0>([](const nodes::AddmmBackward0& node, Recipe& recipe) {
    needs_bias(node.next_edge(0), recipe);
    recipe.needs(node.mat1_);
    recipe.needs(node.mat2_);
    recipe.computed_by([alpha = node.alpha, beta = node.beta](Values values) {
      return at::addmm(values[0], values[1], values[2], beta, alpha);
    });
  });
  // What torch.nn.Linear makes of a product of a batch: its storage is the product's.
  rules.add_dear<nodes::UnsafeViewBackward0>(
      [](const nodes::UnsafeViewBackward0& node, Recipe& recipe) {
        const auto sizes = c10::asIntArrayRefSlowOpt(node.input_metadata(0).shape_as_dim_vector());
        if (!sizes) return recipe.impossible();
        recipe.needs_result(node.next_edge(0), 0);
        recipe.computed_by(
            [sizes = c10::DimVector(*sizes)](Values values) { return values[0].view(sizes); });
      });
}

}  // namespace spillway
