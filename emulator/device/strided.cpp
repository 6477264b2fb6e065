// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/strided.h"

#include <algorithm>

namespace spillway::emulator {
namespace {

using Wide = std::int64_t;  // addresses of user space and their differences fit

Wide floor_div(Wide a, Wide b) {
  return a / b - (a % b < 0 ? 1 : 0);
}

Wide ceil_div(Wide a, Wide b) {
  return -floor_div(-a, b);
}

Wide wide(std::size_t value) {
  return static_cast<Wide>(value);
}

}  // namespace

// NOLINTNEXTLINE(bugprone-easily-swappable-parameters): a view as it is written
std::optional<Strided> Strided::of(std::uintptr_t at,
                                   std::size_t run,
                                   std::size_t axes,
                                   const Axis* axis) {
  Strided made(Range{at, at});
  made.run_ = run;
  for (std::size_t i = 0; i < axes; ++i) {
    if (axis[i].count == 0) return std::nullopt;
    if (axis[i].count == 1 || axis[i].stride == 0) continue;
    if (made.axes_ == kMaxAxes) return std::nullopt;
    made.axis_[made.axes_++] = axis[i];
  }
  auto* const begin = made.axis_.begin();
  std::sort(begin, begin + static_cast<std::ptrdiff_t>(made.axes_), [](Axis a, Axis b) {
    return a.stride > b.stride;
  });
  // Adjacent runs merge to a longer one.
  while (made.axes_ > 0 && made.axis_[made.axes_ - 1].stride <= made.run_) {
    Axis& inner = made.axis_[--made.axes_];
    std::size_t more = 0;
    if (__builtin_mul_overflow(inner.count - 1, inner.stride, &more) ||
        __builtin_add_overflow(made.run_, more, &made.run_)) {
      return std::nullopt;
    }
    inner = {};
  }
  made.extents_[made.axes_] = made.run_;
  for (std::size_t i = made.axes_; i-- > 0;) {
    std::size_t more = 0;
    if (__builtin_mul_overflow(made.axis_[i].count - 1, made.axis_[i].stride, &more) ||
        __builtin_add_overflow(made.extents_[i + 1], more, &made.extents_[i])) {
      return std::nullopt;
    }
  }
  if (!Range::of(at, made.extents_[0])) return std::nullopt;
  return made;
}

std::size_t Strided::bytes() const {
  std::size_t all = run_;
  for (std::size_t i = 0; i < axes_; ++i)
    all *= axis_[i].count;
  return all;
}

/// A search for a common byte. A part of a view is the axes from `axis` on, at an address.
class Meeting {
 public:
  /// If `common` is not null, the search does not end at the first byte but collects all of them.
  Meeting(const Strided& a, const Strided& b, Range within, Strided::Common* common = nullptr)
      : a_(a), b_(b), begin_(wide(within.begin)), end_(wide(within.end)), common_(common) {}

  // NOLINTNEXTLINE(misc-no-recursion): as deep as there are axes
  bool search(std::size_t axis_a, Wide at_a, std::size_t axis_b, Wide at_b) {
    const Wide size_a = wide(a_.extents_[axis_a]);
    const Wide size_b = wide(b_.extents_[axis_b]);
    const Wide begin = std::max({at_a, at_b, begin_});
    const Wide end = std::min({at_a + size_a, at_b + size_b, end_});
    if (begin >= end || ++steps_ > kMaxSteps) return false;
    const bool run_a = axis_a == a_.axes_;
    const bool run_b = axis_b == b_.axes_;
    if (run_a && run_b) {
      if (common_ == nullptr) return true;
      const auto first = static_cast<std::uintptr_t>(begin);
      if (common_->bytes == 0 || first < common_->first) common_->first = first;
      common_->bytes += static_cast<std::size_t>(end - begin);
      return false;
    }
    if (!run_a && !run_b && a_.axis_[axis_a].stride == b_.axis_[axis_b].stride &&
        !side_by_side(axis_a, at_a, axis_b, at_b)) {
      return false;
    }
    const bool along_a = run_b || (!run_a && a_.axis_[axis_a].stride >= b_.axis_[axis_b].stride);
    const Strided& along = along_a ? a_ : b_;
    const std::size_t axis = along_a ? axis_a : axis_b;
    const Wide at = along_a ? at_a : at_b;
    const Wide stride = wide(along.axis_[axis].stride);
    const Wide first =
        std::max<Wide>(0, ceil_div(begin - at - wide(along.extents_[axis + 1]) + 1, stride));
    const Wide last = std::min(wide(along.axis_[axis].count) - 1, floor_div(end - 1 - at, stride));
    for (Wide i = first; i <= last && steps_ <= kMaxSteps; ++i) {
      const bool found = along_a ? search(axis_a + 1, at_a + i * stride, axis_b, at_b)
                                 : search(axis_a, at_a, axis_b + 1, at_b + i * stride);
      if (found) return true;
    }
    return false;
  }

 private:
  static constexpr int kMaxSteps = 1 << 20;

  /// Both repeat with one stride: whether any two of their rows can overlap, at any position. Two
  /// columns of a matrix are thus distinguished without visiting their rows.
  // NOLINTNEXTLINE(misc-no-recursion): as above
  bool side_by_side(std::size_t axis_a, Wide at_a, std::size_t axis_b, Wide at_b) {
    const Wide stride = wide(a_.axis_[axis_a].stride);
    const Wide size_a = wide(a_.extents_[axis_a + 1]);
    const Wide size_b = wide(b_.extents_[axis_b + 1]);
    const Wide between = at_b - at_a;  // row j of b minus row i of a: between + (j - i) * stride
    const Wide first =
        std::max(1 - wide(a_.axis_[axis_a].count), ceil_div(1 - size_b - between, stride));
    const Wide last =
        std::min(wide(b_.axis_[axis_b].count) - 1, floor_div(size_a - 1 - between, stride));
    Meeting anywhere(a_, b_, {0, static_cast<std::uintptr_t>(INT64_MAX)});
    anywhere.steps_ = steps_;
    bool met = false;
    for (Wide shift = first; shift <= last && !met; ++shift)
      met = anywhere.search(axis_a + 1, at_a, axis_b + 1, at_b + shift * stride);
    steps_ = anywhere.steps_;
    return met;
  }

  const Strided& a_;
  const Strided& b_;
  const Wide begin_;
  const Wide end_;
  Strided::Common* const common_;
  int steps_ = 0;
};

bool Strided::meets(const Strided& other, Range within) const {
  return Meeting(*this, other, within).search(0, wide(at_), 0, wide(other.at_));
}

Strided::Common Strided::common(const Strided& other) const {
  Common found;
  Meeting(*this, other, extent(), &found).search(0, wide(at_), 0, wide(other.at_));
  return found;
}

}  // namespace spillway::emulator
