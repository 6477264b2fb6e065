// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"
#include "allocator/plan/recorded_step.h"
#include "allocator/plan/step_times.h"

#include <optional>
#include <vector>

namespace spillway {

/// What has been recorded of a sequence of sizes, so that another process need not record it again.
struct KnownStep {
  std::vector<Bytes> sizes{};
  std::vector<bool> recomputable{};  // by storage
  RecordedStep recorded{};
  std::optional<StepTimes> times{};
};

/// Errors: kInvalidArgument for what no step can have recorded: it comes from a file, and plans
/// index by it.
Status check_known(const KnownStep& step);

}  // namespace spillway
