// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/operator_notes.h"
#include "torch_glue/saved_tensors/rules.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <optional>
#include <tuple>
#include <utility>

namespace spillway {
namespace {

using Values = Recipe::Values;
namespace nodes = torch::autograd::generated;

/// Substitutes for the running statistics, if the operator updated any: the same kernels run, and
/// the model's own statistics count a batch once.
std::pair<at::Tensor, at::Tensor> nobodys_statistics(const at::Tensor& input,
                                                     std::optional<at::ScalarType> of) {
  if (!of) return {};
  const auto options = at::TensorOptions().device(input.device()).dtype(*of);
  return {at::zeros({input.size(1)}, options), at::ones({input.size(1)}, options)};
}

/// With the statistics of the batch, or in evaluation mode with copies of the running ones.
template <typename Node, typename Normalize>
void add_batch_norm(Rules& rules, double Node::*eps, Normalize normalize) {
  rules.add<Node>([eps, normalize](const Node& node, Recipe& recipe) {
    const auto note = note_of(node.result1_);
    if (note == nullptr || !note->eps) return recipe.reject();
    recipe.needs(node.input_);
    recipe.optional_input(node.weight_);
    recipe.optional_input(note->bias);
    if (node.training) {
      recipe.computed_by([eps = node.*eps, of = note->statistics, normalize](Values values) {
        const auto [mean, var] = nobodys_statistics(values[0], of);
        return normalize(values, mean, var, true, eps);
      });
    } else if (note->mean.defined()) {
      recipe.computed_by([eps = node.*eps, note, normalize](Values values) {
        return normalize(values, note->mean, note->var, false, eps);
      });
    } else {
      recipe.reject();
    }
  });
}

}  // namespace

void add_normalizations(Rules& rules) {
  using at::Tensor;
  add_batch_norm<nodes::NativeBatchNormBackward0>(
      rules,
      &nodes::NativeBatchNormBackward0::eps,
      [](Values values, const Tensor& mean, const Tensor& var, bool training, double eps) {
        return std::get<0>(
            at::native_batch_norm(values[0], values[1], values[2], mean, var, training, 0, eps));
      });
  add_batch_norm<nodes::CudnnBatchNormBackward0>(
      rules,
      &nodes::CudnnBatchNormBackward0::epsilon,
      [](Values values, const Tensor& mean, const Tensor& var, bool training, double eps) {
        return std::get<0>(
            at::cudnn_batch_norm(values[0], values[1], values[2], mean, var, training, 0, eps));
      });
  rules.add<nodes::NativeLayerNormBackward0>(
      [](const nodes::NativeLayerNormBackward0& node, Recipe& recipe) {
        const auto note = note_of(node.result1_);
        if (note == nullptr) return recipe.reject();
        recipe.needs(node.input_);
        recipe.optional_input(node.weight_);
        recipe.optional_input(node.bias_);
        recipe.computed_by([shape = node.normalized_shape, note](Values values) {
          return std::get<0>(at::native_layer_norm_symint(
              values[0], shape, values[1], values[2], note->eps.value()));
        });
      });
  rules.add<nodes::FusedRmsNormBackward0>(
      [](const nodes::FusedRmsNormBackward0& node, Recipe& recipe) {
        const auto note = note_of(node.result1_);
        if (note == nullptr) return recipe.reject();
        recipe.needs(node.input_);
        recipe.optional_input(node.weight_);
        recipe.computed_by([shape = node.normalized_shape, note](Values values) {
          // Not an undefined tensor: kernels that are composed of operators multiply by it.
          const auto weight = values[1].defined() ? std::optional(values[1]) : std::nullopt;
          return std::get<0>(at::_fused_rms_norm(values[0], shape, weight, note->eps));
        });
      });
  rules.add<nodes::NativeGroupNormBackward0>(
      [](const nodes::NativeGroupNormBackward0& node, Recipe& recipe) {
        const auto note = note_of(node.result1_);
        if (note == nullptr || !note->eps) return recipe.reject();
        recipe.needs(node.input_);
        recipe.optional_input(node.weight_);
        recipe.optional_input(note->bias);
        recipe.computed_by(
            [n = node.N, c = node.C, hw = node.HxW, group = node.group, eps = *note->eps](
                Values values) {
              return std::get<0>(at::native_group_norm_symint(
                  values[0], values[1], values[2], n, c, hw, group, eps));
            });
      });
}

}  // namespace spillway
