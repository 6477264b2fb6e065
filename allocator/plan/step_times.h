// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/plan/step_profile.h"

#include <cstddef>
#include <optional>
#include <vector>

namespace spillway {

/// What was measured of a recorded step. Places are those of its StepCurve; seconds are of the
/// stream that computes, without what it waited and what it recomputed.
struct StepTimes {
  /// What a place is marked by; kNoStorage: by nothing that is known.
  static constexpr std::size_t kNoStorage = static_cast<std::size_t>(-1);

  struct Mark {
    std::size_t place = 0;
    double seconds = 0;  // since the step began
    std::size_t storage = kNoStorage;
    bool wanted = false;  // not saved
  };

  std::vector<Mark> marks{};          // in order
  double end = 0;                     // of the backward pass
  std::optional<std::size_t> turn{};  // the first place at which something was wanted
  std::vector<std::size_t> saved{};   // by storage
  std::vector<double> recompute{};    // seconds, by storage
  LinkRates link{};
};

/// What was recorded, with the times of `seen`, later steps with the same storages, of which there
/// is one at least: each mark lies where it does in their median. Marks that one of them lacks, or
/// has in another order, lie between those beside them as they did before. What was recomputed
/// takes the median, and what was not takes what it did.
[[nodiscard]] StepTimes typical(const StepTimes& recorded, const std::vector<StepTimes>& seen);

/// Requires: at least one value.
[[nodiscard]] double median(std::vector<double> values);

/// The profile of a recorded step; `recomputable` is by storage. Without times it has none.
StepProfile profile_of(RecordedStep step,
                       const std::vector<Bytes>& sizes,
                       const std::vector<bool>& recomputable,
                       const StepTimes* times);

}  // namespace spillway
