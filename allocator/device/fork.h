// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway {

/// Starts detecting forked children. Threads: safe.
void watch_for_forks();

/// True in a child forked after watch_for_forks(). CUDA does not work there, and threads that do
/// not exist in the child may hold locks.
[[nodiscard]] bool in_forked_child();

}  // namespace spillway
