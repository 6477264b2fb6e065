// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace spillway {

/// From now on forked children are noticed. Threads: safe.
void watch_for_forks();

/// True in a child that was forked after watch_for_forks(): CUDA does not work there, and locks may
/// be held by threads that the child does not have.
[[nodiscard]] bool in_forked_child();

}  // namespace spillway
