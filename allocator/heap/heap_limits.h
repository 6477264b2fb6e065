// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"

namespace spillway {

struct HeapState;

/// The limits of a heap's reserved bytes (Heap::limits). A value that refers to the heap.
/// Threads: safe.
class HeapLimits {
 public:
  explicit HeapLimits(HeapState& state) : state_(&state) {}

  /// The smallest target or budget that limits reserved bytes: a few pages of
  /// HeapView::granularity() bytes. Smaller ones are for tests. They limit allocated bytes, because
  /// fragmentation would dominate so few pages.
  [[nodiscard]] Bytes smallest_budget() const;

  /// Caps the bytes reserved from the driver; zero removes the cap.
  void set_limit(Bytes limit);
  [[nodiscard]] Bytes limit() const;

  /// Sets a soft limit in reserved bytes. Before the heap grows past it, cached memory is released,
  /// which may block the host. If that is not enough, the heap grows anyway. Zero: no soft limit.
  void set_soft_limit(Bytes limit);

  /// Caps the reserved bytes at a budget; zero: no cap. If more is reserved, cached memory is
  /// released, which may block the host. A request that would exceed the budget
  /// (would_exceed_budget) releases cached memory, then fails with kOutOfDeviceMemory. The caller
  /// can then free memory and retry, or call exceed_budget(). The current replay plan is kept. A
  /// caller with a budget below smallest_budget() sets none. end_step() removes the budget together
  /// with the target.
  void set_budget(Bytes budget);
  [[nodiscard]] Bytes budget() const;
  /// Whether reserving `size` bytes would exceed the budget, but not the limit.
  [[nodiscard]] bool would_exceed_budget(Bytes size) const;
  /// Raises the budget so that the heap can reserve `size` bytes more than now. set_budget()
  /// replaces the raised budget.
  void exceed_budget(Bytes size);

 private:
  HeapState* state_;
};

}  // namespace spillway
