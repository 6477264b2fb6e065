// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"
#include "allocator/driver/timeline.h"

#include <cstdint>
#include <vector>

namespace spillway {

/// What must pass before a block may be written again: at most one fence per timeline, its latest.
/// Threads: confined; the heap holds its lock.
class FenceSet {
 public:
  [[nodiscard]] bool empty() const { return fences_.empty(); }

  void add(driver::Fence fence);
  void add(const FenceSet& other);

  void clear() { fences_.clear(); }

  [[nodiscard]] const std::vector<driver::Fence>& all() const { return fences_; }

  /// Forgets the fences that have passed; true where none is left. Stream: no wait.
  bool drop_passed();

  /// Makes `waiter` wait for all of them, and says how many waits that took. The set stays as it
  /// is. Stream: no host wait. Errors: kDriver.
  [[nodiscard]] Result<std::uint64_t> wait(driver::Stream waiter) const;

  /// Blocks the host until all of them have passed. Errors: kDriver.
  [[nodiscard]] Status wait_sync() const;

 private:
  std::vector<driver::Fence> fences_;
};

}  // namespace spillway
