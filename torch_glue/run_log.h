// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway {

/// Times operators and backward nodes from now on while a run log is written
/// (hooks/operator_span.h). Further calls have no effect. Before the first call PyTorch has no
/// callback of ours.
/// Threads: safe.
void time_operators();

/// Logs the blocks of PyTorch's own allocator in the run log from now on. They have no tags. A
/// second call has no effect.
void follow_torch_memory();

}  // namespace spillway
