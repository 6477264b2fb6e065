// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/bodies/bodies.h"

#include <ATen/OpMathType.h>

namespace spillway::operators {
namespace {

/// The gradients of y = x r w with r = (mean(x^2) + eps)^(-1/2), in the order in which autograd
/// takes the CPU's forward apart, so that the rounding is the same.
void rms_norm_backward(c10::Stack& stack, const Draws&) {
  const at::Tensor grad = stack[0].toTensor();
  const at::Tensor input = stack[1].toTensor();
  const int64_t normalized = static_cast<int64_t>(stack[2].toListRef().size());
  const at::Tensor rstd = stack[3].toTensor();
  const auto weight = optional_tensor(stack[4]);
  const auto wanted = stack[5].toBoolList();

  c10::SmallVector<int64_t, 4> inner;
  c10::SmallVector<int64_t, 4> outer;
  int64_t count = 1;
  for (int64_t i = 0; i < input.dim(); ++i) {
    if (i < input.dim() - normalized) {
      outer.push_back(i);
    } else {
      inner.push_back(i);
      count *= input.size(i);
    }
  }
  const auto type = at::toOpMathType(input.scalar_type());
  const at::Tensor g = grad.to(type);
  const at::Tensor x = input.to(type);
  at::Tensor grad_weight;
  if (weight && wanted[1]) {
    const at::Tensor terms = g * (x * rstd);
    grad_weight = (outer.empty() ? terms : terms.sum(outer)).to(weight->scalar_type());
  }
  at::Tensor grad_input;
  if (wanted[0]) {
    const at::Tensor scaled = weight ? g * weight->to(type) : g;
    const at::Tensor grad_rstd = (scaled * x).sum(inner, /*keepdim=*/true);
    const at::Tensor grad_mean = grad_rstd.mul(-0.5).mul(rstd.pow(3));
    grad_input =
        (scaled * rstd + (grad_mean / count).expand_as(x) * (x * 2)).to(input.scalar_type());
  }
  set_results(stack, grad_input, grad_weight);
}

constexpr NamedBody kRmsNormBodies[] = {{"aten::_fused_rms_norm_backward", rms_norm_backward}};

}  // namespace

c10::ArrayRef<NamedBody> rms_norm_bodies() {
  return kRmsNormBodies;
}

}  // namespace spillway::operators
