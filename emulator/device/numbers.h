// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

#include <span>
#include <string>
#include <string_view>

namespace spillway::emulator {

/// A number in a list, with its permitted range.
struct NamedNumber {
  std::string_view name;
  double* value;
  double least;
  double most;
};

/// Parses "memory=3.35e12,product=0.75" into the named numbers; others are unchanged.
/// Errors: kInvalidArgument, with `expected` after the invalid item.
Status read_numbers(const std::string& text,
                    std::span<const NamedNumber> known,
                    const std::string& expected);

}  // namespace spillway::emulator
