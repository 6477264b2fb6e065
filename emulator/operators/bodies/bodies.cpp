// SPDX-License-Identifier: Apache-2.0
#include "emulator/operators/bodies/bodies.h"

namespace spillway::operators {

const NamedBody* find_body(std::string_view name) {
  for (const auto& family : {attention_bodies(),
                             packed_attention_bodies(),
                             batch_norm_bodies(),
                             cudnn_bodies(),
                             layer_norm_bodies(),
                             scaled_matmul_bodies(),
                             recurrent_bodies(),
                             rms_norm_bodies(),
                             dropout_bodies(),
                             matmul_bodies(),
                             mixed_types_bodies()}) {
    for (const NamedBody& known : family) {
      if (known.name == name) return &known;
    }
  }
  return nullptr;
}

std::optional<at::Tensor> optional_tensor(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return std::nullopt;
  return value.toTensor();
}

}  // namespace spillway::operators
