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

/// A step in which everything was offloaded or recomputed, condensed for planning. An event here is
/// the interval between two changes of the offloaded set; `peaks` is the peak of each.
struct RecordedStep {
  std::vector<std::uint64_t> peaks;  // allocated bytes, in order
  std::vector<std::size_t> edges;    // where each event begins, in event indices of StepCurve

  struct Absence {
    std::size_t storage = 0;
    std::size_t from = 0;  // index in peaks
    std::size_t to = 0;
    std::uint64_t bytes = 0;
  };

  std::vector<Absence> absences;  // by storage
  std::vector<Operand> operands;  // event indices refer to peaks
  /// By storage the bytes that its recomputation needs in addition to its result.
  std::vector<std::uint64_t> besides;
  /// The storages that were used as operands only: without a product they are not used at all.
  std::vector<std::size_t> operands_only;
  /// Event indices refer to peaks, which do not have these storages. Another run identifies them
  /// differently, so files have none.
  std::vector<StepCurve::ModelStateUses> model_state_uses;
  std::size_t storages = 0;
  Bytes begin{};                    // allocated when it began
  std::size_t optimizer_begin = 0;  // the first event of the optimizer phase

  RecordedStep() = default;
  RecordedStep(const StepCurve& curve, std::size_t storages);

  /// Converts the recording to one that began with more allocated bytes. Its optimizer phase
  /// allocated them, so the next step begins with them.
  void begin_with(Bytes allocated);
  /// Corrects the recording after a step that began like that needed `by` bytes less before its
  /// optimizer phase. Some of the bytes that it began with were allocated before that phase, and
  /// are already part of `peaks`.
  void needed_less(Bytes by);

  [[nodiscard]] Bytes most() const;
  /// most() after begin_with() with that many bytes.
  [[nodiscard]] Bytes most_beginning_with(Bytes allocated) const;

  /// The event that contains that event of the curve.
  [[nodiscard]] std::size_t event_of(std::size_t curve_event) const;
};

}  // namespace spillway
