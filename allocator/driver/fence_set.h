// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"
#include "allocator/driver/timeline.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <vector>

namespace spillway::driver {

/// Fences that must pass before memory is written again: at most one fence per timeline, its
/// latest. Up to two need no heap allocation.
/// Threads: confined.
class FenceSet {
 public:
  FenceSet() = default;

  FenceSet(std::initializer_list<Fence> fences) {
    for (const Fence fence : fences)
      add(fence);
  }

  [[nodiscard]] bool empty() const { return begin() == end(); }

  [[nodiscard]] const Fence* begin() const { return many_.empty() ? few_.data() : many_.data(); }

  [[nodiscard]] const Fence* end() const {
    return begin() + (many_.empty() ? count_ : many_.size());
  }

  /// A default-constructed fence adds nothing.
  void add(Fence fence) {
    if (!fence.set()) return;
    if (!empty()) return add_to_others(fence);
    few_[0] = fence;
    count_ = 1;
  }

  void add(const FenceSet& other);

  void clear();

  /// Drops the fences that have passed; true if none is left. Stream: no wait.
  bool drop_passed();

  /// The latest point among them; 0 if there are none. By this order fences of different streams
  /// may pass in another one.
  [[nodiscard]] std::uint64_t last_point() const {
    std::uint64_t last = 0;
    for (const Fence fence : *this)
      last = fence.point > last ? fence.point : last;
    return last;
  }

  /// Makes `waiter` wait for all of them, and returns the number of waits. The set is unchanged.
  /// Stream: no host wait.
  /// Errors: kDriver.
  [[nodiscard]] Result<std::uint64_t> wait(Stream waiter) const;

  /// Blocks the host until all of them have passed. Errors: kDriver.
  [[nodiscard]] Status wait_sync() const;

  friend bool operator==(const FenceSet& left, const FenceSet& right) {
    return std::equal(left.begin(), left.end(), right.begin(), right.end());
  }

 private:
  void add_to_others(Fence fence);

  std::array<Fence, 2> few_{};
  std::size_t count_ = 0;    // of the inline fences
  std::vector<Fence> many_;  // all fences, if they are more
};

}  // namespace spillway::driver
