// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/driver/span_log.h"

#include <cstdint>
#include <deque>
#include <map>
#include <utility>

namespace spillway {

/// Ends of the last copies of each stream, by which the length of a stream's wait for a copy is
/// computed. The two events around a wait are apart even without a wait. Follows the rules of
/// python/spillway/report/copies.py, for the copies that it remembers.
///
/// Threads: confined.
class CopyEnds {
 public:
  /// Adds the span of a copy. Spans of a stream come in order.
  void add(const driver::Span& copy);

  /// Whether a stream makes copies. Its waits before a copy are not stalls.
  [[nodiscard]] bool copies(DeviceId device, std::uint64_t stream) const;

  /// When a wait of a compute stream was over: at the end of the copy that it waited for, at the
  /// latest at its own end. The beginning of the wait if no copy was in progress.
  [[nodiscard]] std::uint64_t over(const driver::Span& wait) const;

 private:
  using Queue = std::deque<driver::Span>;

  [[nodiscard]] static const driver::Span* last(const Queue& queue,
                                                const driver::Span& wait,
                                                bool of_its_storage);

  std::map<std::pair<DeviceId, std::uint64_t>, Queue> queues_;
};

}  // namespace spillway
