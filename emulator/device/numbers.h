// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

#include <span>
#include <string>
#include <string_view>

namespace spillway::emulator {

/// A number that a list may name, and from where to where it may go.
struct NamedNumber {
  std::string_view name;
  double* value;
  double least;
  double most;
};

/// Reads "memory=3.35e12,product=0.75" into the numbers that it names; the others stay. Errors:
/// kInvalidArgument, with `expected` behind the item that is wrong.
Status read_numbers(const std::string& text,
                    std::span<const NamedNumber> known,
                    const std::string& expected);

}  // namespace spillway::emulator
