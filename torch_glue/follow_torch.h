// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway {

/// Logs the blocks of PyTorch's own allocator in the run log from now on. They have no tags. A
/// second call has no effect.
void follow_torch_memory();

}  // namespace spillway
