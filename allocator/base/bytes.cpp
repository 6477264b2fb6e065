// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/bytes.h"

#include "allocator/base/check.h"

namespace spillway {

Bytes Bytes::rounded_down(Bytes unit) const {
  SPILLWAY_CHECK(unit.count_ > 0);
  return Bytes{count_ - count_ % unit.count_};
}

Bytes Bytes::rounded_up(Bytes unit) const {
  const Bytes down = rounded_down(unit);
  return down == *this ? down : down + unit;
}

}  // namespace spillway
