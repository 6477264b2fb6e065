// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway {

/// From now on tensors of Python classes that say what they wrap (`__tensor_flatten__`) are moved
/// by what they wrap.
void unwrap_python_classes();

}  // namespace spillway
