// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway {

/// From now on, operators and the nodes of backward passes are timed while a run log is written
/// (hooks/operator_span.h). Calls after the first change nothing. Without it, PyTorch has no
/// callback of ours. Threads: safe.
void time_operators();

}  // namespace spillway
