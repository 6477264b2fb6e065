// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/operand_notes.h"
#include "torch_glue/saved_tensors/rules.h"
#include "torch_glue/saved_tensors/tensor_notes.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/generated/Functions.h>

namespace spillway {

namespace nodes = torch::autograd::generated;

/// A cast saves nothing. The recipe uses the parameter for a cast of a parameter,
/// such as autocast's, and the result for a cast of another operator's result. For an input smaller
/// than the result, it saves the input instead.
void add_casts(Rules& rules) {
  rules.add<nodes::ToCopyBackward0>([](const nodes::ToCopyBackward0& node, Recipe& recipe) {
    const auto source = source_of_cast(node);
    if (!source) return recipe.reject();
    const auto type = node.input_metadata(0).dtype().toScalarType();
    const bool there = source->tensor.defined();
    if (there && source->tensor.is_leaf()) {
      recipe.needs_kept(source->tensor, source->version);
    } else if (there && c10::elementSize(source->type) < c10::elementSize(type)) {
      recipe.needs_substitute(source->tensor);
    } else {
      recipe.needs_result(node.next_edge(0), source->version);
    }
    recipe.computed_by([type](Recipe::Values values) { return at::_to_copy(values[0], type); });
  });
}

}  // namespace spillway
