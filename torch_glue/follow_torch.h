// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway {

/// From now on the run log hears of the blocks of PyTorch's own allocator; it has no tags. Twice
/// changes nothing.
void follow_torch_memory();

}  // namespace spillway
