// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

#include <string>

namespace spillway::emulator {

/// Values that a dry run assumes when the program reads values that were not computed.
struct Assumptions {
  double nonzero = 1;  // selected share of a mask
  double unique = -1;  // share of elements that differ from all others; below 0: no assumption
  double value = 1;    // value of small results of large operands
  double finite = 1;   // isnan and isinf find no element
};

/// "finite,nonzero=0.5": omitted names are unchanged.
/// Errors: kInvalidArgument for unknown names, invalid numbers, and shares outside 0 to 1.
Result<Assumptions> parse_assumptions(const std::string& text);

}  // namespace spillway::emulator
