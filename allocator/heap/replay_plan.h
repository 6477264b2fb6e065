// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/heap/step_recorder.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace spillway {

/// A replay plan: a step's requests, with the memory that each gets when the step repeats. That is
/// one range of the heap region's addresses, or pages: equal parts of its physical memory that need
/// not be adjacent, which a view maps at adjacent addresses (Backing::view).
struct ReplayPlan {
  StepSequence sequence;
  /// By request: the offset of its block. None: it has pages, or no memory.
  std::vector<std::optional<Bytes>> offsets;
  /// By request: the pages of its block, in order. Empty: it has an offset, or no memory.
  std::vector<std::vector<std::uint32_t>> pages;
  Bytes size;
  /// page size; zero if the plan needs no pages
  Bytes page;
  /// Every block of the plan is freed in its own step, and no copy or other stream uses it then.
  /// Such a plan needs no wait and can be followed by a cursor alone (ReplayRegion).
  bool plain = true;
};

/// A replay plan for the requests whose blocks are freed in their own step and used by no copy or
/// other stream.
ReplayPlan replay_plan_of(StepSequence sequence);

/// A replay plan also for the blocks that the next step frees, and those that copies or other
/// streams still use when freed. While all of them fit in `room`, memory with pending uses is not
/// reused, so that no stream waits needlessly. Beyond that, the memory freed first is reused first.
/// Exceeds `room` only if the peak of the allocated bytes does, or by a few pages, which are
/// multiples of `granularity`.
ReplayPlan replay_plan_within(StepSequence sequence, Bytes room, Bytes granularity);

}  // namespace spillway
