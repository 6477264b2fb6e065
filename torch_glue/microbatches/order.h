// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

namespace spillway {

/// One unit of the horizon: a checkpointed layer of one micro-batch, or what a micro-batch saves
/// beside them. Both are counted from 0, in the order of the forward passes.
struct UnitKey {
  std::uint32_t batch = 0;
  std::uint32_t layer = 0;
  auto operator<=>(const UnitKey&) const = default;
};

/// In which order the units of a training step run, forward and backward: what has run, and what
/// will. A step is expected to go as the one before it did. The first one, and one that has gone
/// another way, are expected to finish the micro-batch whose backward pass runs, and then to go to
/// the oldest that is left, or to the latest where the pass began with that.
///
/// Threads: none, its owner locks.
class UnitOrder {
 public:
  /// A step begins: the one that has ended is what is expected of it.
  void begin_step();

  void forward(UnitKey unit);
  void backward(UnitKey unit);

  /// Of the next `horizon` runs of units, those that are backward, soonest first.
  [[nodiscard]] std::vector<UnitKey> backward_within(std::size_t horizon) const;

  /// Whether `unit`, whose forward pass is the latest run, had better stay: its micro-batch goes on
  /// to its backward pass with no other in between, or its own backward pass is within `horizon`.
  [[nodiscard]] bool stays(UnitKey unit, std::size_t horizon) const;

  /// Micro-batches of the step so far, and how many of them went straight on to their backward
  /// pass.
  [[nodiscard]] std::size_t batches() const;
  [[nodiscard]] std::size_t straight() const;

 private:
  struct Run {
    bool backward;
    UnitKey unit;
    bool operator==(const Run&) const = default;
  };

  void note(Run run);
  [[nodiscard]] std::vector<UnitKey> guess(std::size_t horizon) const;

  std::vector<Run> expected_;
  std::vector<Run> runs_;
  bool as_expected_ = false;
  std::set<UnitKey> waiting_;         // their forward pass has run, their backward pass has not
  std::set<std::uint32_t> straight_;  // of expected_
};

}  // namespace spillway
