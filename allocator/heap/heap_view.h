// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/heap/heap_stats.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace spillway {

struct HeapState;

/// Reads a heap's memory in detail (Heap::view). A value that refers to the heap.
/// Threads: safe.
class HeapView {
 public:
  explicit HeapView(HeapState& state) : state_(&state) {}

  /// HeapStats::allocated without visiting the blocks; reserved() likewise.
  [[nodiscard]] Bytes allocated() const;
  [[nodiscard]] Bytes reserved() const;
  /// driver_allocations + driver_releases: changes whenever segments() gains or loses memory.
  [[nodiscard]] std::uint64_t mapping_changes() const;
  /// Number of times that stats(), stats_by_tier(), tags() and segments() have visited the blocks.
  /// For tests.
  [[nodiscard]] std::uint64_t walks() const;
  /// Statistics of the small tier and of all others: bytes that are allocated, free, reserved and
  /// stranded now, and cumulative totals; no peaks. driver_allocations counts the present chunks.
  /// Visits every block.
  [[nodiscard]] std::array<HeapStats, 2> stats_by_tier() const;
  /// Accounting of every tag that has, or had since reset_peaks(), an allocated block; by id.
  [[nodiscard]] std::vector<HeapTagInfo> tags() const;
  void reset_peaks();
  [[nodiscard]] std::vector<HeapSegmentInfo> segments() const;
  /// Memory by tag and stream, as out-of-memory errors print it.
  [[nodiscard]] std::string describe() const;
  /// The first inconsistency of the accounting; empty if there is none. For tests.
  [[nodiscard]] std::string check() const;
  /// The granularity of the device's physical memory.
  [[nodiscard]] Bytes granularity() const;

  /// All allocated blocks with this tag, in no particular order.
  [[nodiscard]] std::vector<HeapBlockInfo> blocks_of(TagId tag) const;

 private:
  HeapState* state_;
};

}  // namespace spillway
