// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"
#include "allocator/lifetime/allocation_curve.h"
#include "allocator/plan/operands.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway {

/// A step in which everything was offloaded that could be, in as few numbers as plans need. Its
/// places are the stretches between two changes of what is offloaded; peaks has the most that was
/// live in each.
struct RecordedStep {
  std::vector<std::uint64_t> peaks;  // bytes, in order
  std::vector<std::size_t> edges;    // where each place begins, in StepCurve's places

  struct Absence {
    std::size_t storage = 0;
    std::size_t from = 0;  // of peaks
    std::size_t to = 0;
    std::uint64_t bytes = 0;
  };

  std::vector<Absence> absences;  // by storage
  std::vector<Operand> operands;  // places are of peaks
  /// Bytes by storage that computing it again takes besides what is there when it is done.
  std::vector<std::uint64_t> besides;
  std::size_t storages = 0;
  Bytes begin{};         // live when it began
  std::size_t tail = 0;  // the place that the optimizer's step begins with

  RecordedStep() = default;
  RecordedStep(const StepCurve& curve, std::size_t storages);

  /// As if it had begun with more live, which its tail had made and the next step begins with.
  void begin_with(Bytes live);
  /// A step that began like that needed this much less than was thought, before its tail: of what
  /// it began with, some was made before the tail and in `peaks` already.
  void needed_less(Bytes by);

  [[nodiscard]] Bytes most() const;

  /// The place in which that place of the curve lies.
  [[nodiscard]] std::size_t place_of(std::size_t curve_place) const;
};

}  // namespace spillway
