// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/bodies/bodies.h"

#include <ATen/Functions.h>

// Types that an operator takes on a GPU and not on the CPU.
namespace spillway::operators {
namespace {

using Softmax = at::Tensor (*)(const at::Tensor& self, int64_t dim, bool half_to_float);
using Gradient = at::Tensor (*)(const at::Tensor& gradient,
                                const at::Tensor& output,
                                int64_t dim,
                                at::ScalarType type);

/// From half to single precision in one operator.
template <Softmax kSoftmax>
void softmax(c10::Stack& s, const Draws&) {
  const at::Tensor self = s[0].toTensor();
  const bool half_to_float = s[2].toBool();
  const at::Tensor input = half_to_float ? self.to(at::kFloat) : self;
  set_results(s, kSoftmax(input, s[1].toInt(), false));
}

template <Gradient kGradient>
void softmax_backward(c10::Stack& s, const Draws&) {
  const at::Tensor gradient = s[0].toTensor();
  const auto type = s[3].toScalarType();
  const at::Tensor made =
      kGradient(gradient, s[1].toTensor(), s[2].toInt(), gradient.scalar_type());
  set_results(s, made.to(type));
}

/// Of integers. Counts of up to 2^53 are exact.
void histc(c10::Stack& s, const Draws&) {
  const at::Tensor self = s[0].toTensor();
  const bool whole = c10::isIntegralType(self.scalar_type(), /*includeBool=*/false);
  const at::Tensor numbers = whole ? self.to(at::kDouble) : self;
  set_results(
      s, at::histc(numbers, s[1].toInt(), s[2].toScalar(), s[3].toScalar()).to(self.scalar_type()));
}

constexpr NamedBody kMixedTypesBodies[] = {
    {"aten::_log_softmax", softmax<at::_log_softmax>},
    {"aten::_log_softmax_backward_data", softmax_backward<at::_log_softmax_backward_data>},
    {"aten::_softmax", softmax<at::_softmax>},
    {"aten::_softmax_backward_data", softmax_backward<at::_softmax_backward_data>},
    {"aten::histc", histc},
};

}  // namespace

c10::ArrayRef<NamedBody> mixed_types_bodies() {
  return kMixedTypesBodies;
}

}  // namespace spillway::operators
