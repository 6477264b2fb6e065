// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/number.h"

#include "allocator/base/check.h"

#include <array>
#include <charconv>
#include <limits>

namespace spillway {

std::string to_text(double value) {
  std::array<char, 32> digits{};
  const auto written = std::to_chars(digits.begin(), digits.end(), value);
  return {digits.begin(), written.ptr};
}

std::string to_text(double value, int decimals) {
  SPILLWAY_CHECK(decimals >= 0 && decimals <= 16);
  std::array<char, std::numeric_limits<double>::max_exponent10 + 24> digits{};
  const auto written =
      std::to_chars(digits.begin(), digits.end(), value, std::chars_format::fixed, decimals);
  return {digits.begin(), written.ptr};
}

}  // namespace spillway
