// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/plan/recorded_step.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace spillway {

/// Bandwidth and latency of the link between a device and its host.
struct LinkRates {
  double out = 0;       // bytes per second, to the host
  double in = 0;        // bytes per second, to the device
  double per_copy = 0;  // seconds of overhead per copy

  [[nodiscard]] double out_seconds(std::uint64_t bytes) const {
    return per_copy + static_cast<double>(bytes) / out;
  }

  [[nodiscard]] double in_seconds(std::uint64_t bytes) const {
    return per_copy + static_cast<double>(bytes) / in;
  }
};

/// A recorded step with the costs of its storages: the complete input of planning. Event indices
/// are those of `memory`; seconds are device time.
struct StepProfile {
  struct Storage {
    std::uint64_t bytes = 0;  // copied by an offload, each way
    std::size_t saved = 0;    // event index of its save
    std::size_t first_use =
        0;  // event index of its next use; the number of events if there is none
    std::optional<double> recompute{};  // seconds; none if it cannot be recomputed
  };

  explicit StepProfile(RecordedStep recorded) : memory(std::move(recorded)) {}

  [[nodiscard]] std::size_t events() const { return memory.peaks.size(); }

  /// Whether its times are known. Without them a plan still respects the budget.
  [[nodiscard]] bool timed() const {
    return seconds.size() == events() && link.out > 0 && link.in > 0;
  }

  RecordedStep memory;
  std::vector<Storage> storages{};
  /// Compute time of each event, without copies, waits and recomputation; empty if unknown.
  std::vector<double> seconds{};
  std::size_t boundary = 0;  // first event of the backward pass
  /// Memory can be reused as soon as its copy out is queued. If not, plans do not offload storages
  /// that the recorded step recomputed, because offloading would free them later.
  bool free_at_once = true;
  LinkRates link{};
};

/// The action for a storage between the forward and backward pass.
enum class Action : std::uint8_t {
  kKeep,
  kOffload,    // offload to the host, then fetch
  kRecompute,  // release, then recompute
};

}  // namespace spillway
