// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace spillway {

/// Estimates how many bytes the link to a device still has to copy when the device reaches the work
/// that the host submits now. Hosts run ahead of their device, so time is counted in uses of
/// managed storages: a pass (a step of a region with a budget) makes about as many as the one
/// before, and takes as long.
/// Threads: confined; the caller holds its lock.
class LinkBacklog {
 public:
  /// A pass begins. The link copies that many bytes in the time that one takes; zero if unknown.
  void begin_pass(double bytes) {
    if (uses_ != 0) per_use_ = bytes / static_cast<double>(uses_);
    uses_ = 0;
  }

  /// A storage is used. Of all time, `queued` bytes have been queued.
  void use(Bytes queued, bool in_pass) {
    left_ = per_use_ > 0 ? std::max(0.0, left(queued) - per_use_) : 0;
    seen_ = queued.count();
    if (in_pass) ++uses_;
  }

  /// Whether copies that are queued now would begin much later; false while the pace is unknown.
  [[nodiscard]] bool is_long(Bytes queued) const { return per_use_ > 0 && left(queued) > kLong; }

 private:
  static constexpr double kLong = 128.0 * (1U << 20U);  // bytes

  [[nodiscard]] double left(Bytes queued) const {
    return left_ + static_cast<double>(queued.count() - seen_);
  }

  std::size_t uses_ = 0;    // of the running pass
  double per_use_ = 0;      // bytes that the link copies meanwhile
  double left_ = 0;         // bytes, at the last use
  std::uint64_t seen_ = 0;  // bytes that had been queued then
};

}  // namespace spillway
