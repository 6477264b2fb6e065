// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/heap/heap_state.h"

#include <optional>

namespace spillway {

/// Records the requests of a heap's steps, and replays steps that repeat. A value that refers to
/// the heap.
/// Threads: safe.
class StepReplay {
 public:
  explicit StepReplay(HeapState& heap) : heap_(heap), replay_(heap.replay) {}

  /// ReplayRegion::take; maps missing memory first.
  driver::DevicePtr take(ReplayRegion& region, Bytes size, TagId tag);
  /// Handles a free that is not the replay plan's next event. True if the free is complete.
  bool release(driver::DevicePtr at);
  /// PlacementAdvisor::end_step.
  void end_step();

 private:
  bool follow_plan() SPILLWAY_REQUIRES(heap_.mutex);
  void rest() SPILLWAY_REQUIRES(heap_.mutex);
  std::optional<Bytes> room_for(const StepSequence& sequence);
  ReplayRegion* idle_region(CUstream stream) SPILLWAY_REQUIRES(heap_.mutex);
  /// `room`: bytes that it was made for; none without a target.
  void adopt(const ReplayPlan& plan, std::optional<Bytes> room) SPILLWAY_REQUIRES(heap_.mutex);

  HeapState& heap_;
  ReplayState& replay_;
};

}  // namespace spillway
