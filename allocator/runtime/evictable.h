// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"
#include "allocator/base/mutex.h"
#include "allocator/base/result.h"

#include <string>
#include <string_view>
#include <vector>

namespace spillway {

/// Which tags may be paused without being asked when a device runs out of memory, and whose turn it
/// is to move memory. One for a process. Threads: safe.
class Evictable {
 public:
  /// From now on what is under `pattern` may be paused. Errors: kInvalidArgument for the empty
  /// pattern: memory without a tag has no contract.
  Status allow(std::string_view pattern);
  /// Takes one allow() of the same pattern back. Errors: kNotReady where there was none.
  Status forbid(std::string_view pattern);

  /// Until the matching release, what is under `pattern` stays, whatever is allowed.
  void pin(std::string_view pattern);
  void unpin(std::string_view pattern);

  /// Whether memory under `tag` may be paused now.
  [[nodiscard]] bool allows(TagId tag) const;

  /// Held by the code that pauses or resumes: one at a time in a process. Taken before all other
  /// locks.
  Mutex& turn() { return turn_; }

 private:
  Mutex turn_;
  mutable Mutex mutex_;
  std::vector<std::string> allowed_ SPILLWAY_GUARDED_BY(mutex_);
  std::vector<std::string> pinned_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
