// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/driver/fence_set.h"

#include <utility>

namespace spillway {

/// For memory that a copy fills first. During its lifetime, the stream of a block that this thread
/// allocates does not wait for the fences of the free block that becomes it. The caller makes the
/// copy wait for fences() instead. Without a copy, the caller returns them to the block by
/// Heap::add_fence. Threads: confined. May be nested; the innermost one counts.
class DeferredWaits {
 public:
  DeferredWaits() : outer_(std::exchange(active(), this)) {}

  ~DeferredWaits() { active() = outer_; }

  DeferredWaits(const DeferredWaits&) = delete;
  DeferredWaits& operator=(const DeferredWaits&) = delete;

  [[nodiscard]] const driver::FenceSet& fences() const { return fences_; }

  /// For the heap: takes the fences instead of a wait. False without such an object.
  static bool defer(const driver::FenceSet& fences) {
    if (active() == nullptr) return false;
    active()->fences_.add(fences);
    return true;
  }

 private:
  /// Not inline: one for all of Spillway's libraries.
  static DeferredWaits*& active();

  DeferredWaits* const outer_;
  driver::FenceSet fences_;
};

}  // namespace spillway
