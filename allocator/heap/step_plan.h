// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/heap/step_recorder.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace spillway {

/// A step's requests with their places.
struct StepPlan {
  StepSequence sequence;
  /// By request: where its block begins; none: it has no place, or one in pages.
  std::vector<std::optional<Bytes>> offsets;
  /// By request: the pages that its block lies in, in its order; empty: it has an offset, or none.
  std::vector<std::vector<std::uint32_t>> pages;
  Bytes size;
  /// What memory is mapped in; zero where there is no need for pages.
  Bytes page;
  /// Every block that has a place is freed in its own step, and not used by others at that time.
  bool plain = true;
};

/// Best places for the requests of a sequence whose blocks nothing but their own step uses.
StepPlan plan_of(StepSequence sequence);

/// The same for those too that the step after theirs frees, and that copies or other streams still
/// use then. Such memory is left alone for as long as all of it fits `room`, so that nothing waits
/// for a copy who need not; then what was freed first goes first. Larger than `room` only where
/// more lives at one time, or by some pages, which are multiples of `granularity`.
StepPlan plan_within(StepSequence sequence, Bytes room, Bytes granularity);

}  // namespace spillway
