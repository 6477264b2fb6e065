// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/operators/generators.h"

#include <ATen/core/stack.h>

#include <string_view>

namespace spillway::operators {

/// An operator implemented with CPU operators, because PyTorch has it on CUDA only. Takes its
/// arguments (as CPU tensors) from the stack and pushes its results.
using Body = void (*)(c10::Stack& stack, const Draws& draws);

struct NamedBody {
  std::string_view name;
  Body body;
  unsigned on_host = 0;  // bit i: result i stays on the CPU, as on a GPU
};

/// The body of an operator ("aten::_fused_rms_norm_backward"); null if its CPU kernel is used.
const NamedBody* find_body(std::string_view name);

c10::ArrayRef<NamedBody> attention_bodies();
c10::ArrayRef<NamedBody> packed_attention_bodies();
c10::ArrayRef<NamedBody> batch_norm_bodies();
c10::ArrayRef<NamedBody> cudnn_bodies();
c10::ArrayRef<NamedBody> layer_norm_bodies();
c10::ArrayRef<NamedBody> mixed_types_bodies();
c10::ArrayRef<NamedBody> scaled_matmul_bodies();
c10::ArrayRef<NamedBody> recurrent_bodies();
c10::ArrayRef<NamedBody> rms_norm_bodies();
c10::ArrayRef<NamedBody> dropout_bodies();
c10::ArrayRef<NamedBody> matmul_bodies();

/// An optional argument: none if it is None or an undefined tensor.
std::optional<at::Tensor> optional_tensor(const c10::IValue& value);

/// Replaces the stack by the results.
template <class... Results>
void set_results(c10::Stack& stack, Results&&... results) {
  stack.clear();
  (stack.emplace_back(std::forward<Results>(results)), ...);
}

}  // namespace spillway::operators
