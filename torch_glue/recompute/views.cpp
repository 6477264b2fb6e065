// SPDX-License-Identifier: Apache-2.0
// Views have no bytes of their own: they are between an operator and its input.
#include "torch_glue/saved_tensors/operand_notes.h"
#include "torch_glue/saved_tensors/rules.h"

#include <c10/core/SymIntArrayRef.h>
#include <torch/csrc/autograd/generated/Functions.h>

namespace spillway {
namespace {

namespace nodes = torch::autograd::generated;

/// The result behind the node, at this version, in the node's shape.
void in_its_shape(const torch::autograd::Node& node, std::uint32_t version, Recipe& recipe) {
  const auto sizes = c10::asIntArrayRefSlowOpt(node.input_metadata(0).shape_as_dim_vector());
  if (!sizes) return recipe.reject();
  recipe.is_view();
  recipe.needs_result(node.next_edge(0), version);
  recipe.computed_by(
      [sizes = c10::DimVector(*sizes)](Recipe::Values values) { return values[0].view(sizes); });
}

/// A view shares its version counter with its base. The user of the view has compared versions with
/// those of the result behind it (version_of_result), so no comparison is needed here.
template <typename Node>
void add_view(Rules& rules) {
  rules.add<Node>([](const Node& node, Recipe& recipe) {
    const auto& viewed = node.next_edge(0);
    if (viewed.function == nullptr) return recipe.reject();
    in_its_shape(node, version_of_result(*viewed.function, viewed.input_nr), recipe);
  });
}

}  // namespace

void add_views(Rules& rules) {
  add_view<nodes::ViewBackward0>(rules);
  add_view<nodes::ReshapeAliasBackward0>(rules);
  // The view that torch.nn.Linear makes of a batch product: not a view for autograd. ATen makes it
  // only of unshared results.
  rules.add_expensive<nodes::UnsafeViewBackward0>(
      [](const nodes::UnsafeViewBackward0& node, Recipe& recipe) {
        in_its_shape(node, 0, recipe);
      });
}

}  // namespace spillway
