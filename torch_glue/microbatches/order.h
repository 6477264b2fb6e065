// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

namespace spillway {

/// One unit of the horizon: a checkpointed layer of one micro-batch, or the tensors that a
/// micro-batch saves outside of such layers. Both are counted from 0, in the order of the forward
/// passes.
struct UnitKey {
  std::uint32_t batch = 0;
  std::uint32_t layer = 0;
  auto operator<=>(const UnitKey&) const = default;
};

/// The order in which the units of a training step run, forward and backward: past and expected. A
/// step is expected to repeat the previous one. In the first step, and after a deviation, the
/// micro-batch in its backward pass is expected to finish first. Then the oldest remaining one
/// follows, or the latest one if the pass began with the latest.
///
/// Threads: guarded by the owner's lock.
class UnitOrder {
 public:
  /// Begins a step; the previous step becomes the expectation for it.
  void begin_step();

  void forward(UnitKey unit);
  void backward(UnitKey unit);

  /// The units with a backward run among the next `horizon` runs, soonest first.
  [[nodiscard]] std::vector<UnitKey> backward_within(std::size_t horizon) const;

  /// Whether `unit`, whose forward pass was the latest run, should stay resident. That is so if its
  /// micro-batch continues directly to its backward pass, or if its backward pass is within
  /// `horizon`.
  [[nodiscard]] bool keeps_resident(UnitKey unit, std::size_t horizon) const;

  /// Number of micro-batches in the step so far, and of those that continued directly to their
  /// backward pass.
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
  std::set<UnitKey> waiting_;         // forward pass done, backward pass not yet
  std::set<std::uint32_t> straight_;  // of expected_
};

}  // namespace spillway
