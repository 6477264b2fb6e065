// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/result.h"

#include <string>
#include <string_view>

namespace spillway {

/// What a step may need of each device.
struct Budget {
  Bytes bytes{};      // zero where it is a share
  double share = 0;   // of all that the device has
  bool rest = false;  // the share is of what the device has for this process
  /// Above zero: the step is to need as little as it can while it takes at most this many times
  /// what it takes with everything kept.
  double slowdown = 0;
  /// A step that exceeds it is a warning, not an error.
  bool warns = false;

  /// The share of "auto": fragmentation needs room too.
  static constexpr double kAuto = 0.95;

  /// Of "20GiB", "80%" and "auto". Errors: kInvalidArgument for anything else, naming `name`.
  static Result<Budget> of(std::string_view text, std::string_view name);

  /// Errors: kInvalidArgument, naming `name`, outside 1 to 100; nothing has changed then.
  Status limit_time(double times, std::string_view name);

  [[nodiscard]] Bytes on(Bytes total, Bytes available) const;
  /// Of "error" and "warn": what a step that exceeds it is. Errors: kInvalidArgument for anything
  /// else, naming `name`; nothing has changed then.
  Status set_over_budget(std::string_view text, std::string_view name);

  /// For messages.
  [[nodiscard]] std::string text() const;

  bool operator==(const Budget&) const = default;
};

}  // namespace spillway
