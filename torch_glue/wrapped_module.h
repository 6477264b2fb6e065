// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway {

/// Offloads tensors of Python classes that support `__tensor_flatten__` by their inner tensors,
/// from now on.
void unwrap_python_classes();

}  // namespace spillway
