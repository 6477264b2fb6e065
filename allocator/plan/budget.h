// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"

#include <string>
#include <string_view>

namespace spillway {

/// The device memory that a step may need.
struct Budget {
  Bytes bytes{};      // zero if the budget is a share
  double share = 0;   // share of the device's total memory
  bool rest = false;  // the share refers to the memory that is free or reserved by this process
  /// Above zero: minimizes the step's memory. The step may take at most this many times its
  /// duration with everything kept.
  double slowdown = 0;
  /// Exceeding the budget is a warning, not an error.
  bool warns = false;

  /// "auto" is 95 % of the GPU memory that is free, or reserved by this process, when its first
  /// step with a budget begins. The rest is left for fragmentation.
  static constexpr double kAuto = 0.95;

  /// Parses "20GiB", "80%" and "auto".
  /// Errors: kInvalidArgument for anything else, with `name` in the text.
  static Result<Budget> of(std::string_view text, std::string_view name);

  /// Sets `slowdown` to `times`.
  /// Errors: kInvalidArgument, with `name` in the text, if `times` is not from 1 to 100; nothing
  /// has changed then.
  Status limit_time(double times, std::string_view name);

  /// The budget in bytes on a device with `total` bytes. `available`: the bytes that are free, or
  /// reserved by this process.
  [[nodiscard]] Bytes on(Bytes total, Bytes available) const;

  /// For messages.
  [[nodiscard]] std::string text() const;

  bool operator==(const Budget&) const = default;
};

}  // namespace spillway
