// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/operator_notes.h"
#include "torch_glue/saved_tensors/random_start.h"
#include "torch_glue/saved_tensors/rules.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <tuple>
#include <utility>

namespace spillway {
namespace {

/// The dropout's result and mask, from its input; for the mask alone, any tensor with the input's
/// layout.
std::tuple<at::Tensor, at::Tensor> drop_again(const OperatorNote::Drawn& drawn,
                                              const at::Tensor& input) {
  const DrawAgain generator(drawn.start);
  return at::native_dropout(input, drawn.p, true);
}

at::Tensor like_its_input(const OperatorNote::Drawn& drawn) {
  return at::empty_strided(drawn.sizes, drawn.strides, drawn.options);
}

}  // namespace

void add_dropout(Rules& rules) {
  using torch::autograd::generated::NativeDropoutBackward0;
  rules.add<NativeDropoutBackward0>([](const NativeDropoutBackward0& node, Recipe& recipe) {
    auto note = note_of(node.result1_);
    if (note == nullptr || !note->drawn || !note->input_version) return recipe.reject();
    recipe.needs_result(node.next_edge(0), *note->input_version);
    recipe.computed_by([note = std::move(note)](Recipe::Values values) {
      const auto& drawn = *note->drawn;
      if (values[0].strides().equals(drawn.strides)) {
        return std::get<0>(drop_again(drawn, values[0]));
      }
      const at::Tensor input = like_its_input(drawn);
      input.copy_(values[0]);
      return std::get<0>(drop_again(drawn, input));
    });
  });
}

std::unique_ptr<Recipe> recipe_of_mask(const at::Tensor& mask) {
  const auto& note = current_note();
  if (note == nullptr || !note->drawn || mask.scalar_type() != at::kBool ||
      !mask.sizes().equals(note->drawn->sizes)) {
    return nullptr;
  }
  return Recipe::of_nothing([note](Recipe::Values) {
    // A kernel's random numbers depend on the layout of its input, not on its values.
    return std::get<1>(drop_again(*note->drawn, like_its_input(*note->drawn)));
  });
}

}  // namespace spillway
