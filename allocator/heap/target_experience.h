// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"

#include <cstddef>
#include <map>
#include <utility>

namespace spillway {

/// What the steps of a program have shown about targets (PlacementAdvisor::set_target), for each
/// value of the target. It ends attempts that do not help. Beyond 256 values it learns nothing.
/// Threads: confined.
class TargetExperience {
 public:
  /// A replay plan that steps follow under a target.
  struct Followed {
    Bytes size;                // of the plan
    Bytes room;                // that was available to it
    std::size_t requests = 0;  // of its step
    int steps = 0;             // that followed it
  };

  /// Whether to release memory beyond the target again. Steps under a new target fragment memory
  /// differently from earlier ones; after a few of them the layout is stable.
  bool should_trim(Bytes target);

  /// Bytes that the next replay plan must leave free under the target, in addition to memory that
  /// is double-buffered. Zero until a plan has reserved too much.
  [[nodiscard]] Bytes to_leave(Bytes target) const;

  /// Whether a replay plan of `size` bytes is rejected, because it leaves less than `leaves` of
  /// `room`. The shortfall is kept for take_shortfall().
  bool rejects(Bytes target, Bytes size, Bytes leaves, Bytes room);

  /// The bytes that the last rejected plan lacked if it was for this target; reading clears it.
  Bytes take_shortfall(Bytes target);

  /// Whether to give up a replay plan whose steps reserve `most` bytes. The next plan must then
  /// leave more room.
  bool gives_up(Bytes target, Bytes most, const Followed& plan);

 private:
  struct Known {
    int trims = 0;
    int rejected = 0;  // replay plans
    int given_up = 0;
    /// The last plan given up: its size and its number of requests.
    std::pair<Bytes, std::size_t> last_given_up{};
    Bytes to_leave;
  };

  /// Null if too many other targets are known.
  Known* known(Bytes target);

  std::map<Bytes, Known> targets_;
  std::pair<Bytes, Bytes> shortfall_;  // target and bytes
};

}  // namespace spillway
