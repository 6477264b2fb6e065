// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"

#include <unordered_set>
#include <utility>
#include <vector>

namespace spillway {

/// Blocks that another stream uses inside a capture. No place on that stream can be waited for
/// until the capture has ended, and what runs then is a graph of its own order: such a block is
/// freed when the capture ends, and not before. Threads: safe.
class CapturedUses {
 public:
  void add(void* block) {
    const Lock lock(mutex_);
    used_.insert(block);
  }

  /// True where the block is to be freed when the captures have ended, which it keeps in mind.
  bool defer(void* block) {
    const Lock lock(mutex_);
    if (used_.erase(block) == 0) return false;
    freed_.push_back(block);
    return true;
  }

  /// The captures have ended: the blocks to free now.
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
