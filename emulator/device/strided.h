// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/range.h"

#include <array>
#include <optional>

namespace spillway::emulator {

/// The bytes of a view: runs of `run` bytes, repeated along axes. No axis: one run.
class Strided {
 public:
  struct Axis {
    std::size_t count;
    std::size_t stride;  // in bytes

    bool operator==(const Axis&) const = default;
  };

  static constexpr std::size_t kMaxAxes = 8;

  // NOLINTNEXTLINE(google-explicit-constructor): a range is a view of one run
  Strided(Range range) : at_(range.begin), run_(range.bytes()) { extents_[0] = run_; }

  /// Axes in any order; those with one entry or no stride are ignored. None if the bytes exceed the
  /// address space or more axes than kMaxAxes remain.
  static std::optional<Strided> of(std::uintptr_t at,
                                   std::size_t run,
                                   std::size_t axes,
                                   const Axis* axis);

  /// From the first byte to one past the last.
  [[nodiscard]] Range extent() const { return {at_, at_ + extents_[0]}; }

  /// The same view of other memory.
  [[nodiscard]] Strided moved_to(std::uintptr_t at) const {
    Strided moved = *this;
    moved.at_ = at;
    return moved;
  }

  /// Number of bytes if no two runs overlap.
  [[nodiscard]] std::size_t bytes() const;

  [[nodiscard]] bool is_dense() const { return axes_ == 0; }

  /// Whether both have a common byte within `within`. Exact, at a bounded cost: views whose
  /// interleaving a million steps do not decide count as disjoint.
  [[nodiscard]] bool meets(const Strided& other, Range within) const;

  struct Common {
    std::uintptr_t first = 0;
    std::size_t bytes = 0;  // 0: none
  };

  /// The common bytes. With the same bound, so there may be more.
  [[nodiscard]] Common common(const Strided& other) const;

  bool operator==(const Strided&) const = default;

 private:
  friend class Meeting;

  std::uintptr_t at_ = 0;
  std::size_t run_ = 0;
  std::size_t axes_ = 0;
  std::array<Axis, kMaxAxes> axis_{};                // the longest stride first
  std::array<std::size_t, kMaxAxes + 1> extents_{};  // extent of the axes from i on
};

}  // namespace spillway::emulator
