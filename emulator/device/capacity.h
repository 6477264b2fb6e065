// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace spillway::emulator {

/// Accounting of the physical memory of each device. Threads: under the machine's lock.
class Capacity {
 public:
  /// `context` of the bytes are reserved for CUDA itself from the start.
  Capacity(int devices, std::size_t bytes, std::size_t context)
      : total_(bytes), devices_(static_cast<std::size_t>(devices), Use{context, context}) {}

  /// False, without a change, if the device has less memory left.
  bool take(int device, std::size_t bytes) {
    Use& use = devices_[static_cast<std::size_t>(device)];
    if (bytes > total_ - use.used) return false;
    use.used += bytes;
    use.peak = std::max(use.peak, use.used);
    return true;
  }

  void give(int device, std::size_t bytes) {
    devices_[static_cast<std::size_t>(device)].used -= bytes;
  }

  [[nodiscard]] std::size_t total() const { return total_; }

  [[nodiscard]] std::size_t used(int device) const {
    return devices_[static_cast<std::size_t>(device)].used;
  }

  [[nodiscard]] std::size_t peak(int device) const {
    return devices_[static_cast<std::size_t>(device)].peak;
  }

  void reset_peak(int device) {
    Use& use = devices_[static_cast<std::size_t>(device)];
    use.peak = use.used;
  }

 private:
  struct Use {
    std::size_t used = 0;
    std::size_t peak = 0;
  };

  const std::size_t total_;
  std::vector<Use> devices_;
};

}  // namespace spillway::emulator
