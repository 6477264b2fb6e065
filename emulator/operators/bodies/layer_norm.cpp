// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/bodies/bodies.h"

// CUDA's layer norm keeps mean and rstd of half types in float, the CPU's in the input's type
// unless the weight is wide. The values here are the CPU's, so that its gradients have the same
// bits; the type is CUDA's.
namespace spillway::operators {
namespace {

bool is_half(at::ScalarType type) {
  return type == at::kHalf || type == at::kBFloat16;
}

std::vector<int64_t> shape(const c10::IValue& value) {
  return value.toIntVector();
}

void layer_norm(c10::Stack& s, const Draws&) {
  const at::Tensor input = s[0].toTensor();
  auto [output, mean, rstd] = at::native_layer_norm(
      input, shape(s[1]), optional_tensor(s[2]), optional_tensor(s[3]), s[4].toDouble());
  if (is_half(input.scalar_type())) {
    mean = mean.to(at::kFloat);
    rstd = rstd.to(at::kFloat);
  }
  set_results(s, output, mean, rstd);
}

void layer_norm_backward(c10::Stack& s, const Draws&) {
  const at::Tensor input = s[1].toTensor();
  const auto weight = optional_tensor(s[5]);
  const auto bias = optional_tensor(s[6]);
  const bool wide = (weight && weight->scalar_type() == at::kFloat) ||
                    (bias && bias->scalar_type() == at::kFloat);
  const auto type = is_half(input.scalar_type()) && wide ? at::kFloat : input.scalar_type();
  auto [grad, grad_weight, grad_bias] =
      at::native_layer_norm_backward(s[0].toTensor(),
                                     input,
                                     shape(s[2]),
                                     s[3].toTensor().to(type),
                                     s[4].toTensor().to(type),
                                     weight,
                                     bias,
                                     c10::IValue(s[7]).to<std::array<bool, 3>>());
  set_results(s, grad, grad_weight, grad_bias);
}

constexpr NamedBody kLayerNormBodies[] = {
    {"aten::native_layer_norm", layer_norm},
    {"aten::native_layer_norm_backward", layer_norm_backward},
};

}  // namespace

c10::ArrayRef<NamedBody> layer_norm_bodies() {
  return kLayerNormBodies;
}

}  // namespace spillway::operators
