// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/check.h"
#include "allocator/driver/handles.h"

namespace spillway {

/// Requires: from <= to.
inline Bytes distance(driver::DevicePtr from, driver::DevicePtr to) {
  SPILLWAY_CHECK(from <= to);
  return Bytes{to.address() - from.address()};
}

/// Addresses from `begin` until `end()` (exclusive).
struct Range {
  driver::DevicePtr begin;
  Bytes size;

  [[nodiscard]] driver::DevicePtr end() const { return begin + size; }

  [[nodiscard]] bool contains(driver::DevicePtr at) const { return begin <= at && at < end(); }

  [[nodiscard]] bool contains(const Range& other) const {
    return begin <= other.begin && other.end() <= end();
  }
};

}  // namespace spillway
