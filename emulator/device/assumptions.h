// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"

#include <string>

namespace spillway::emulator {

/// What a dry run takes for true where the program asks for values that nothing has computed.
struct Assumptions {
  double nonzero = 1;  // the share of a mask that selects
  double unique = -1;  // the share of elements that differ from all others; below 0: is not assumed
  double value = 1;    // what small results of something larger hold
  double finite = 1;   // whether isnan and isinf find nothing
};

/// "finite,nonzero=0.5": those that are left out stay as they are. Errors: kInvalidArgument for
/// unknown names, what is no number, and shares outside 0 to 1.
Result<Assumptions> parse_assumptions(const std::string& text);

}  // namespace spillway::emulator
