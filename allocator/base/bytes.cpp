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

}  // namespace spillway
