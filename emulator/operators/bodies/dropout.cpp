// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/bodies/bodies.h"

namespace spillway::operators {
namespace {

/// aten::native_dropout has a CPU kernel, but no generator argument through which to give it ours.
void native_dropout(c10::Stack& stack, const Draws& draws) {
  const at::Tensor input = stack[0].toTensor();
  const double p = stack[1].toDouble();
  const auto train = stack[2].toOptional<bool>();
  if (p == 0 || !train.value_or(true) || input.numel() == 0) {
    auto [output, mask] = at::native_dropout(input, p, train);
    return set_results(stack, output, mask);
  }
  const double kept = 1 - p;
  const at::Tensor mask = at::empty_like(input, at::kBool);
  mask.bernoulli_(kept, draws.generator());
  set_results(stack, input.mul(mask).mul_(kept == 0 ? 0. : 1. / kept), mask);
}

/// `kept` is the probability of keeping a number.
void fused_dropout(c10::Stack& stack, const Draws& draws) {
  const at::Tensor input = stack[0].toTensor();
  const double kept = stack[1].toDouble();
  const at::Tensor mask = at::empty_like(input, at::kByte);
  mask.bernoulli_(kept, draws.generator());
  set_results(stack, input.mul(mask).mul_(1. / kept), mask);
}

void masked_scale(c10::Stack& stack, const Draws&) {
  set_results(stack, stack[0].toTensor().mul(stack[1].toTensor()).mul_(stack[2].toDouble()));
}

constexpr NamedBody kDropoutBodies[] = {
    {"aten::_fused_dropout", fused_dropout},
    {"aten::_masked_scale", masked_scale},
    {"aten::native_dropout", native_dropout},
};

}  // namespace

c10::ArrayRef<NamedBody> dropout_bodies() {
  return kDropoutBodies;
}

}  // namespace spillway::operators
