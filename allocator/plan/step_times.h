// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/plan/step_profile.h"

#include <cstddef>
#include <vector>

namespace spillway {

/// Measured times of a recorded step. Event indices are those of its StepCurve. Seconds are time of
/// the compute stream, without waits and recomputation.
struct StepTimes {
  /// The storage that marks an event; kNoStorage: none is known.
  static constexpr std::size_t kNoStorage = static_cast<std::size_t>(-1);

  struct Mark {
    std::size_t event = 0;  // its index
    double seconds = 0;     // since the step began
    std::size_t storage = kNoStorage;
    bool used = false;  // false: saved
  };

  std::vector<Mark> marks{};        // in order
  double end = 0;                   // end of the backward pass
  std::vector<double> recompute{};  // seconds, by storage
  LinkRates link{};
};

/// The recorded marks with the times of `seen`, later steps with the same storages, of which there
/// must be at least one. Each mark gets its median time. Marks that a step lacks or has in another
/// order keep their relative position between their neighbors. A recomputation gets its median;
/// without a measurement it keeps its recorded time.
[[nodiscard]] StepTimes typical(const StepTimes& recorded, const std::vector<StepTimes>& seen);

/// Requires: at least one value.
[[nodiscard]] double median(std::vector<double> values);

/// The profile of a recorded step; `recomputable` is by storage. Without `times` the profile has no
/// times.
StepProfile profile_of(RecordedStep step,
                       const std::vector<Bytes>& sizes,
                       const std::vector<bool>& recomputable,
                       const StepTimes* times);

}  // namespace spillway
