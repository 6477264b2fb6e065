// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"

#include <unordered_set>
#include <utility>
#include <vector>

namespace spillway {

/// Blocks that another stream uses within a capture. A fence on that stream cannot be waited for
/// until the capture has ended. Such a block is therefore freed when the capture ends.
/// Threads: safe.
class CapturedUses {
 public:
  void add(void* block) {
    const Lock lock(mutex_);
    used_.insert(block);
  }

  /// Defers the free of a block that a capture uses. True if it was deferred until the captures
  /// end.
  bool defer(void* block) {
    const Lock lock(mutex_);
    if (used_.erase(block) == 0) return false;
    freed_.push_back(block);
    return true;
  }

  /// Ends the captures; returns the blocks to free now.
  std::vector<void*> end() {
    const Lock lock(mutex_);
    used_.clear();
    return std::exchange(freed_, {});
  }

 private:
  Mutex mutex_;
  std::unordered_set<void*> used_ SPILLWAY_GUARDED_BY(mutex_);
  std::vector<void*> freed_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
