// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"

namespace spillway {

/// A pool for memory that is kept apart, which no one else has had in this process. Threads: safe.
PoolId new_pool();

/// The pool of the innermost PoolScope on this thread, kShared where there is none.
PoolId current_pool();

/// From its beginning to its end this thread's blocks come from a pool of their own, and share no
/// physical memory with others. Threads: ended on the thread that began it.
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
