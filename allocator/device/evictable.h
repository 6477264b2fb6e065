// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"
#include "allocator/base/mutex.h"
#include "allocator/base/result.h"

#include <string>
#include <string_view>
#include <vector>

namespace spillway {

/// The tags that may be paused when a device runs out of memory, and the lock for pausing and
/// resuming. One per process.
/// Threads: safe.
class Evictable {
 public:
  /// Allows memory under `pattern` to be paused.
  /// Errors: kInvalidArgument for the empty pattern, because untagged memory has no contract.
  Status allow(std::string_view pattern);
  /// Undoes one allow() of the same pattern. Errors: kNotReady if there is none.
  Status forbid(std::string_view pattern);

  /// Keeps memory under `pattern` resident until the matching release, even if a pattern allows its
  /// pause.
  void pin(std::string_view pattern);
  void unpin(std::string_view pattern);

  /// Whether memory under `tag` may be paused now.
  [[nodiscard]] bool allows(TagId tag) const;

  /// Held while memory is paused or resumed: one operation at a time in a process. Locked before
  /// all other locks.
  Mutex& operation_mutex() { return operation_mutex_; }

 private:
  Mutex operation_mutex_;
  mutable Mutex mutex_;
  std::vector<std::string> allowed_ SPILLWAY_GUARDED_BY(mutex_);
  std::vector<std::string> pinned_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
