// SPDX-License-Identifier: Apache-2.0
// Matrix products: expensive compared to other recomputations, but faster than a link if their
// inner dimension is some thousands. Only plans for a budget request them.
#include "torch_glue/base/compat.h"
#include "torch_glue/saved_tensors/again.h"
#include "torch_glue/saved_tensors/operand_notes.h"
#include "torch_glue/saved_tensors/rules.h"
#include "torch_glue/saved_tensors/tensor_notes.h"

#include <ATen/Functions.h>
#include <c10/core/SymIntArrayRef.h>
#include <torch/csrc/autograd/generated/Functions.h>

namespace spillway {
namespace {

using Values = Recipe::Values;
namespace autograd = torch::autograd;
namespace nodes = torch::autograd::generated;

/// Whether keeping the tensor occupies hardly more memory than a row of the result. Parameters
/// exist anyway, and a cast of one has a storage of its own.
bool is_small(const at::Tensor& bias) {
  const at::Tensor* const base = compat::view_base(bias);
  return bias.dim() == 1 && ((base != nullptr ? *base : bias).is_leaf() || is_whole(bias));
}

/// Adds the bias, trainable or frozen, as it was when it was passed: no node saves it. Returns its
/// type, which the value has after a cast.
at::ScalarType needs_bias(const nodes::AddmmBackward0& node, Recipe& recipe) {
  const auto bias = bias_of_product(node);
  if (!bias || !bias->tensor.defined() || !is_small(bias->tensor)) {
    recipe.reject();
    return at::ScalarType::Undefined;
  }
  recipe.needs_kept(bias->tensor, bias->version);
  return bias->type;
}

/// Whether both matrices are dense, so that their product is deterministic.
bool are_dense(at::Layout one, at::Layout other) {
  return one == at::kStrided && other == at::kStrided;
}

/// The result of an adapter's narrow side: recomputing it would need all of its inputs, for very
/// few bytes.
bool is_narrow(const c10::SymIntArrayRef& input, const autograd::Node& node) {
  constexpr std::int64_t kNarrow = 8;
  const auto result = c10::asIntArrayRefSlowOpt(node.input_metadata(0).shape_as_dim_vector());
  const auto given = c10::asIntArrayRefSlowOpt(input);
  return result && given && result->size() == 2 && given->size() == 2 &&
         result->back() < given->back() / kNarrow;
}

}  // namespace

void add_products(Rules& rules) {
  rules.add_expensive<nodes::MmBackward0>([](const nodes::MmBackward0& node, Recipe& recipe) {
    if (!are_dense(node.self_layout, node.mat2_layout) || is_narrow(node.self_sym_sizes, node)) {
      return recipe.reject();
    }
    recipe.needs_operand(node, node.self_, 0, &OperandVersions::self);
    recipe.needs(node.mat2_);
    recipe.computed_by([](Values values) { return at::mm(values[0], values[1]); });
  });
  rules.add_expensive<nodes::AddmmBackward0>([](const nodes::AddmmBackward0& node, Recipe& recipe) {
    if (!are_dense(node.mat1_layout, node.mat2_layout) || is_narrow(node.mat1_sym_sizes, node)) {
      return recipe.reject();
    }
    const at::ScalarType type = needs_bias(node, recipe);
    recipe.needs_operand(node, node.mat1_, 1, &OperandVersions::self);
    recipe.needs(node.mat2_);
    recipe.computed_by([type, alpha = node.alpha, beta = node.beta](Values values) {
      const at::Tensor bias = values[0].to(type);
      return at::addmm(bias, values[1], values[2], beta, alpha);
    });
  });
}

}  // namespace spillway
