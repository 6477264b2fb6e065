// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/plan/recorded_step.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace spillway {

/// What the link between a device and its host can do.
struct LinkRates {
  double out = 0;       // bytes per second, to the host
  double in = 0;        // to the device
  double per_copy = 0;  // seconds that each copy takes besides

  [[nodiscard]] double out_seconds(std::uint64_t bytes) const {
    return per_copy + static_cast<double>(bytes) / out;
  }

  [[nodiscard]] double in_seconds(std::uint64_t bytes) const {
    return per_copy + static_cast<double>(bytes) / in;
  }
};

/// A recorded step with what its storages cost: all that a plan is made from. Places are those of
/// `memory`; seconds are the device's.
struct StepProfile {
  struct Storage {
    std::uint64_t bytes = 0;  // that a move copies, each way
    std::size_t saved = 0;    // at the beginning of this place
    std::size_t wanted = 0;   // again, for the first time; the number of places where never
    std::optional<double> recompute{};  // seconds; none where it cannot be recomputed
  };

  explicit StepProfile(RecordedStep recorded) : memory(std::move(recorded)) {}

  [[nodiscard]] std::size_t places() const { return memory.peaks.size(); }

  /// Whether its times are known. Without them a plan keeps to the budget anyway.
  [[nodiscard]] bool timed() const {
    return seconds.size() == places() && link.out > 0 && link.in > 0;
  }

  RecordedStep memory;
  std::vector<Storage> storages{};
  /// What computing takes in each place, without copies, waits and what is recomputed; empty
  /// where that is not known.
  std::vector<double> seconds{};
  std::size_t turn = 0;  // the first place of the backward pass
  /// Memory can be handed out as soon as its copy out has been queued. Where it cannot, what was
  /// recomputed when the step was recorded is not moved in a plan: that would free it later.
  bool free_at_once = true;
  LinkRates link{};
};

/// What happens to a storage between the passes.
enum class Action : std::uint8_t {
  kKeep,
  kMove,       // to the host, and back
  kRecompute,  // released, and recomputed
};

}  // namespace spillway
