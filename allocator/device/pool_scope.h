// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"

namespace spillway {

/// A pool id that is new in this process, for memory that is kept separate. Threads: safe.
PoolId new_pool();

/// The pool of the innermost PoolScope on this thread; kShared if there is none.
PoolId current_pool();

/// Allocates this thread's blocks from a separate pool. They share no physical memory with other
/// blocks.
/// Threads: must end on the thread that began it.
class PoolScope {
 public:
  explicit PoolScope(PoolId pool);
  ~PoolScope();
  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;

 private:
  PoolId outer_;
};

}  // namespace spillway
