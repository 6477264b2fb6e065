// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway::emulator {

/// An entity with a sequential order: a host thread or a stream.
using Actor = std::size_t;

/// Maximum number at a time. Further ones share the last number, which hides races and never causes
/// false reports.
inline constexpr Actor kMaxActors = 4096;
inline constexpr Actor kSharedActor = kMaxActors - 1;

/// Number of operations of each actor that are ordered before a point.
class VectorClock {
 public:
  [[nodiscard]] std::uint64_t of(Actor actor) const {
    return actor < epochs_.size() ? epochs_[actor] : 0;
  }

  void learn(Actor actor, std::uint64_t epoch) {
    if (actor >= epochs_.size()) epochs_.resize(actor + 1);
    epochs_[actor] = std::max(epochs_[actor], epoch);
  }

  void join(const VectorClock& other) {
    if (epochs_.size() < other.epochs_.size()) epochs_.resize(other.epochs_.size());
    for (Actor i = 0; i < other.epochs_.size(); ++i) {
      epochs_[i] = std::max(epochs_[i], other.epochs_[i]);
    }
  }

  /// Afterwards the clock never allocates.
  void reserve_all() { epochs_.reserve(kMaxActors); }

  void forget_all() { epochs_.clear(); }

 private:
  std::vector<std::uint64_t> epochs_;
};

}  // namespace spillway::emulator
