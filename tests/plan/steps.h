// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/lifetime/allocation_curve.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace spillway {

/// A step whose storages are saved one by one and used again in reverse, as training has them.
inline StepCurve nested(const std::vector<std::uint64_t>& sizes, std::uint64_t base) {
  StepCurve curve;
  const std::size_t count = sizes.size();
  curve.allocated.assign(2 * count + 1, base);
  for (std::size_t index = 0; index < count; ++index)
    curve.absences.push_back({index, index + 1, 2 * count - index, sizes[index]});
  return curve;
}

}  // namespace spillway
