// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/heap/step_recorder.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace spillway {

/// A step's requests with their planned offsets.
struct StepPlan {
  StepSequence sequence;
  /// By request: the offset of its block. None: it is not planned, or it lies in pages.
  std::vector<std::optional<Bytes>> offsets;
  /// By request: the pages of its block, in order. Empty: it has an offset, or is not planned.
  std::vector<std::vector<std::uint32_t>> pages;
  Bytes size;
  /// page size; zero if the plan needs no pages
  Bytes page;
  /// Every planned block is freed in its own step and not used by others at that time.
  bool plain = true;
};

/// Plans the requests whose blocks are freed in their own step and used by no copy or other stream.
StepPlan plan_of(StepSequence sequence);

/// Plans also the blocks that the next step frees, and those that copies or other streams still use
/// when freed. While all of them fit in `room`, memory with pending uses is not reused, so that no
/// stream waits needlessly. Beyond that, the memory freed first is reused first. Exceeds `room`
/// only if the peak of the allocated bytes does, or by a few pages, which are multiples of
/// `granularity`.
StepPlan plan_within(StepSequence sequence, Bytes room, Bytes granularity);

}  // namespace spillway
