// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/driver/span_log.h"

#include <cstdint>
#include <deque>
#include <map>
#include <utility>

namespace spillway {

/// When the last copies of each stream ended, which reports a wait how long it was for one:
/// between a wait's two events there is always some time, whether it waited or not. By the same
/// rules as python/spillway/report/copies.py, over the copies that it still knows.
///
/// Threads: none of its own; one at a time.
class CopyEnds {
 public:
  /// `copy` is a copy's span, after those that its stream has had before.
  void add(const driver::Span& copy);

  /// Whether a stream copies: it has waited before it does, which is no stall.
  [[nodiscard]] bool copies(DeviceId device, std::uint64_t stream) const;

  /// When a computing stream's wait was over: its own end, or before that the end of the copy that
  /// it was for; its beginning where it waited for none that was still going on.
  [[nodiscard]] std::uint64_t over(const driver::Span& wait) const;

 private:
  using Queue = std::deque<driver::Span>;

  [[nodiscard]] static const driver::Span* last(const Queue& queue,
                                                const driver::Span& wait,
                                                bool of_its_storage);

  std::map<std::pair<DeviceId, std::uint64_t>, Queue> queues_;
};

}  // namespace spillway
