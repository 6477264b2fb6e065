// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/plan/known_step.h"
#include "allocator/plan/shape.h"

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

namespace spillway {

/// The shapes that a BudgetChooser knows.
/// Threads: confined.
class Shapes {
 public:
  /// Maximum number of shapes; the owner drops the oldest one for another.
  static constexpr std::size_t kMax = 256;

  [[nodiscard]] bool full() const { return shapes_.size() >= kMax; }

  /// Requires: not full().
  Shape& add(std::vector<Bytes> sizes, std::vector<bool> recomputable);
  /// Adds a step recorded elsewhere. Null if it is known or there is no room.
  /// Requires: check_known(step) is ok.
  const Shape* learn(KnownStep step);

  /// Null if there is none.
  Shape* with_id(std::uint64_t id);

  /// The least recently used one. Requires: there is one.
  [[nodiscard]] const Shape& oldest() const;
  void drop(const Shape& shape);

  /// The recorded steps that can be planned.
  [[nodiscard]] std::vector<KnownStep> known() const;

  /// Predicted peak of the reserved bytes of steps that follow the latest plans; zero without a
  /// plan.
  [[nodiscard]] Bytes predicted_reserved() const;

  /// Number of changes of the recordings so far.
  [[nodiscard]] std::uint64_t records() const;

  auto begin() { return shapes_.begin(); }

  auto end() { return shapes_.end(); }

 private:
  std::list<Shape> shapes_;
  std::uint64_t next_id_ = 0;
  std::uint64_t dropped_records_ = 0;  // records() of shapes that were dropped
};

}  // namespace spillway
