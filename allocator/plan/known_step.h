// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"
#include "allocator/plan/recorded_step.h"
#include "allocator/plan/step_times.h"

#include <optional>
#include <vector>

namespace spillway {

/// The recording of a sequence of sizes. Another process can plan with it without recording.
struct KnownStep {
  std::vector<Bytes> sizes{};
  std::vector<bool> recomputable{};  // by storage
  RecordedStep recorded{};
  std::optional<StepTimes> times{};
};

/// Errors: kInvalidArgument for a recording that no step can have produced. Recordings come from
/// files, and plans use their indices.
Status check_known(const KnownStep& step);

}  // namespace spillway
