// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/shapes/host_draws.h"

#include <ATen/ops/normal_native.h>
#include <ATen/ops/uniform_native.h>

namespace spillway::operators {
namespace {

bool left_alone(const at::Tensor& tensor) {
  constexpr size_t kDrawn = size_t{1} << 20U;  // in bytes
  return tensor.nbytes() > kDrawn;
}

at::Tensor& normal(at::Tensor& self,
                   double mean,
                   double std,
                   const std::optional<at::Generator>& generator) {
  return left_alone(self) ? self : at::native::normal_(self, mean, std, generator);
}

at::Tensor& uniform(at::Tensor& self,
                    double from,
                    double to,
                    const std::optional<at::Generator>& generator) {
  return left_alone(self) ? self : at::native::uniform_(self, from, to, generator);
}

}  // namespace

std::vector<std::pair<std::string, c10::KernelFunction>> host_draws() {
  std::vector<std::pair<std::string, c10::KernelFunction>> kernels;
  kernels.emplace_back("aten::normal_",
                       c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(normal)));
  kernels.emplace_back("aten::uniform_",
                       c10::KernelFunction::makeFromUnboxedFunction(TORCH_FN(uniform)));
  return kernels;
}

}  // namespace spillway::operators
