// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/bytes.h"

#include "allocator/base/check.h"
#include "allocator/base/number.h"

#include <array>

namespace spillway {

Bytes Bytes::rounded_down(Bytes unit) const {
  SPILLWAY_CHECK(unit.count_ > 0);
  return Bytes{count_ - count_ % unit.count_};
}

Bytes Bytes::rounded_up(Bytes unit) const {
  const Bytes down = rounded_down(unit);
  return down == *this ? down : down + unit;
}

std::string readable(Bytes bytes) {
  constexpr std::array kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes.count());
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit)
    value /= 1024;
  return to_text(value, unit == 0 ? 0 : 2) + ' ' + kUnits.at(unit);
}

std::string setting_of(Bytes need) {
  constexpr std::uint64_t kSpare = 50;
  constexpr std::array kUnits = {
      std::pair(30U, "GiB"), std::pair(20U, "MiB"), std::pair(10U, "KiB")};
  for (const auto& [shift, unit] : kUnits) {
    const std::uint64_t below = need.count() >> shift;
    const std::uint64_t rest = need.count() - (below << shift);
    const std::uint64_t more = rest == 0 ? 0 : (std::uint64_t{1} << shift) - rest;
    if (more <= need.count() / kSpare) return std::to_string(below + (rest == 0 ? 0 : 1)) + unit;
  }
  return std::to_string(need.count()) + "B";
}

}  // namespace spillway
