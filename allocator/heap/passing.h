// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/driver/fence_set.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace spillway {

/// What is known while the driver is asked about the fences of many blocks: those that lie behind
/// one that has not passed have not either, and need not be asked for. Threads: confined.
class Passing {
 public:
  /// Whether one of them is known not to have passed.
  [[nodiscard]] bool pending(const driver::FenceSet& fences) const {
    return std::any_of(fences.begin(), fences.end(), [this](driver::Fence fence) {
      const auto* const known = find(fence);
      return known != end() && fence.point >= known->point;
    });
  }

  /// None of them has passed.
  void has_not(const driver::FenceSet& fences) {
    for (const driver::Fence fence : fences) {
      auto* const known = known_.data() + (find(fence) - known_.data());
      if (known != end()) {
        known->point = std::min(known->point, fence.point);
      } else if (count_ < known_.size()) {
        known_.at(count_++) = fence;
      }
    }
  }

 private:
  [[nodiscard]] const driver::Fence* end() const { return known_.data() + count_; }

  [[nodiscard]] const driver::Fence* find(driver::Fence like) const {
    return std::find_if(
        known_.data(), end(), [&](driver::Fence fence) { return fence.timeline == like.timeline; });
  }

  std::array<driver::Fence, 4> known_{};  // the earliest of each timeline; of others nothing
  std::size_t count_ = 0;
};

}  // namespace spillway
