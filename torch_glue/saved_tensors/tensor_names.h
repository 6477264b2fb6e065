// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace spillway {

/// Remembers what a program calls a tensor, for messages, as long as the tensor lives. Threads:
/// any.
void name_tensor(const at::Tensor& tensor, const std::string& name);

/// What the tensor with that version counter is called; empty where nobody has named it. Threads:
/// any.
std::string name_of(const c10::VariableVersion& counter);

}  // namespace spillway
