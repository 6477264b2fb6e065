// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/rebuild/operator_notes.h"
#include "torch_glue/rebuild/rules.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <tuple>
#include <utility>

namespace spillway {
namespace {

using Values = Recipe::Values;
namespace nodes = torch::autograd::generated;

/// Where an operator is to update running statistics, as it was when it ran first: the same kernels
/// run, and the model's own statistics count a batch once.
std::pair<at::Tensor, at::Tensor> nobodys_statistics(const at::Tensor& input) {
  const auto options = at::TensorOptions().device(input.device()).dtype(at::kFloat);
  return {at::zeros({input.size(1)}, options), at::ones({input.size(1)}, options)};
}

/// Input, weight, bias, and the running statistics where they are used.
template <typename Node>
void takes_of_batch_norm(const Node& node, Recipe& recipe) {
  const auto note = note_of(node.result1_);
  if (note == nullptr) return recipe.impossible();
  recipe.needs(node.input_);
  recipe.may_need(node.weight_);
  recipe.may_need(note->bias);
  if (node.training) return;
  recipe.may_need(node.running_mean_);
  recipe.may_need(node.running_var_);
}

void add_batch_norms(Rules& rules) {
  rules.add<nodes::NativeBatchNormBackward0>(
      [](const nodes::NativeBatchNormBackward0& node, Recipe& recipe) {
        takes_of_batch_norm(node, recipe);
        recipe.computed_by([training = node.training, eps = node.eps](Values values) {
          if (!training) {
            return std::get<0>(at::native_batch_norm(
                values[0], values[1], values[2], values[3], values[4], false, 0, eps));
          }
          const auto [mean, var] = nobodys_statistics(values[0]);
          return std::get<0>(
              at::native_batch_norm(values[0], values[1], values[2], mean, var, true, 0, eps));
        });
      });
  rules.add<nodes::CudnnBatchNormBackward0>(
      [](const nodes::CudnnBatchNormBackward0& node, Recipe& recipe) {
        takes_of_batch_norm(node, recipe);
        recipe.computed_by([training = node.training, eps = node.epsilon](Values values) {
          if (!training) {
            return std::get<0>(at::cudnn_batch_norm(
                values[0], values[1], values[2], values[3], values[4], false, 0, eps));
          }
          const auto [mean, var] = nobodys_statistics(values[0]);
          return std::get<0>(
              at::cudnn_batch_norm(values[0], values[1], values[2], mean, var, true, 0, eps));
        });
      });
}

}  // namespace

void add_normalizations(Rules& rules) {
  add_batch_norms(rules);
  rules.add<nodes::NativeLayerNormBackward0>(
      [](const nodes::NativeLayerNormBackward0& node, Recipe& recipe) {
        const auto note = note_of(node.result1_);
        if (note == nullptr) return recipe.impossible();
        recipe.needs(node.input_);
        recipe.may_need(node.weight_);
        recipe.may_need(node.bias_);
        recipe.computed_by([shape = node.normalized_shape, note](Values values) {
          return std::get<0>(at::native_layer_norm_symint(
              values[0], shape, values[1], values[2], note->eps.value()));
        });
      });
  rules.add<nodes::FusedRmsNormBackward0>(
      [](const nodes::FusedRmsNormBackward0& node, Recipe& recipe) {
        const auto note = note_of(node.result1_);
        if (note == nullptr) return recipe.impossible();
        recipe.needs(node.input_);
        recipe.may_need(node.weight_);
        recipe.computed_by([shape = node.normalized_shape, note](Values values) {
          return std::get<0>(at::_fused_rms_norm(values[0], shape, values[1], note->eps));
        });
      });
  rules.add<nodes::NativeGroupNormBackward0>([](const nodes::NativeGroupNormBackward0& node,
                                                Recipe& recipe) {
    const auto note = note_of(node.result1_);
    if (note == nullptr) return recipe.impossible();
    recipe.needs(node.input_);
    recipe.may_need(node.weight_);
    recipe.may_need(note->bias);
    recipe.computed_by(
        [n = node.N, c = node.C, hw = node.HxW, group = node.group, eps = node.eps](Values values) {
          return std::get<0>(
              at::native_group_norm_symint(values[0], values[1], values[2], n, c, hw, group, eps));
        });
  });
}

}  // namespace spillway
