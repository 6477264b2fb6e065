// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/plan/recorded_step.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
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

/// An interval of a step in which a candidate's memory is not needed: its events from <= e < to.
struct Window {
  std::size_t from = 0;  // the end of the last use before it
  std::size_t to = 0;    // the next use; the number of events if it is not used again in the step
  std::uint64_t bytes = 0;  // of its block, which is free meanwhile
  std::size_t ready = 0;    // the event at which a copy out can begin: the contents are final
  std::uint64_t out = 0;    // bytes to copy out; zero if the copy on the host is current
  std::uint64_t in = 0;     // bytes to copy in for the next use; zero if there is none
  double ready_after = 0;   // seconds of that event's compute before the copy out can begin
};

/// What one action decides: the contents of a storage over one or several windows. A storage whose
/// windows can be decided independently has a candidate for each of them.
struct Candidate {
  std::uint64_t bytes = 0;            // of the contents, for comparisons and sums
  std::optional<double> recompute{};  // seconds of recomputing them; none if that is impossible
  std::vector<Window> windows{};      // disjoint, in order; empty: it is needed all the time
};

/// A recorded step with the costs of its candidates: the complete input of planning. Event indices
/// are those of `memory`; seconds are device time.
struct StepProfile {
  /// A candidate for each storage of the recording, whose absences become its windows. Only the
  /// first one has copies: where a recorded step released a storage between two later uses, one
  /// that is offloaded mostly stays, because these uses wait for it.
  explicit StepProfile(RecordedStep recorded);

  [[nodiscard]] std::size_t events() const { return memory.peaks.size(); }

  /// Whether its times are known. Without them a plan still respects the budget.
  [[nodiscard]] bool timed() const {
    return seconds.size() == events() && link.out > 0 && link.in > 0;
  }

  /// Sets the bytes of a candidate's contents, and of its copies.
  void set_contents(std::size_t candidate, std::uint64_t bytes);

  /// The event of the candidate's first use after a window; events() if there is none.
  [[nodiscard]] std::size_t first_use(std::size_t candidate) const {
    const auto& windows = candidates[candidate].windows;
    return windows.empty() ? events() : windows.front().to;
  }

  /// Seconds of the copies out of a candidate's windows, of those that begin at `until` or before.
  [[nodiscard]] double out_seconds(
      std::size_t candidate, std::size_t until = std::numeric_limits<std::size_t>::max()) const;

  /// The event after the last one in which a copy out becomes possible: the end of the forward
  /// pass, in a step of one.
  [[nodiscard]] std::size_t end_of_saving() const;

  /// Compute seconds until then. Copies out that take no longer do not delay compute after it.
  [[nodiscard]] double seconds_of_saving() const;

  RecordedStep memory;  // without absences, which are windows here
  std::vector<Candidate> candidates{};
  /// Candidates from there on are not of storages that the step saves (JointStep).
  std::size_t others = std::numeric_limits<std::size_t>::max();
  /// Compute time of each event, without copies, waits and recomputation; empty if unknown.
  std::vector<double> seconds{};
  /// Memory can be reused as soon as its copy out is queued. If not, plans do not offload storages
  /// that the recorded step recomputed, because offloading would free them later.
  bool free_at_once = true;
  LinkRates link{};
};

/// The action for the windows of a candidate.
enum class Action : std::uint8_t {
  kKeep,
  kOffload,    // offload to the host, then fetch
  kRecompute,  // release, then recompute
};

}  // namespace spillway
