// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_tensors/rules.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/generated/Functions.h>

#include <tuple>

namespace spillway {

namespace nodes = torch::autograd::generated;

void add_poolings(Rules& rules) {
  using Node = nodes::MaxPool2DWithIndicesBackward0;
  rules.add<Node>([](const Node& node, Recipe& recipe) {
    recipe.needs(node.self_);
    recipe.computed_by([kernel = node.kernel_size,
                        stride = node.stride,
                        padding = node.padding,
                        dilation = node.dilation,
                        ceil = node.ceil_mode](Recipe::Values values) {
      return std::get<0>(
          at::max_pool2d_with_indices(values[0], kernel, stride, padding, dilation, ceil));
    });
  });
}

}  // namespace spillway
