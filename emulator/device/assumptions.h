// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace spillway::emulator {

/// Values that a dry run assumes when the program reads values that were not computed.
struct Assumptions {
  double nonzero = 1;  // selected share of a mask
  double unique = -1;  // share of elements that differ from all others; below 0: no assumption
  double value = 1;    // value of small results of large operands
  double finite = 1;   // isnan and isinf find no element
};

/// A valid value of SPILLWAY_EMULATE_ASSUME, such as "finite,nonzero=0.5": omitted names have their
/// default.
Assumptions parse_assumptions(std::string_view text);

}  // namespace spillway::emulator
