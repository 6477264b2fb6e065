// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"

#include <algorithm>

namespace spillway {

/// The tensors that are recomputed for one tensor, one from another, itself included.
struct RecomputeChain {
  int length = 0;     // an expensive operator counts twice; zero: nothing is recomputed
  Bytes narrowest{};  // of its saved tensors: the chain ends where one is kept or offloaded

  /// Of operands of one operator. The widest long one counts: to keep the others does not end the
  /// chain. A short one, such as the cast of a weight, is not where it would end.
  void join(const RecomputeChain& other) {
    const bool is_short = 2 * other.length < length;
    const bool was_short = 2 * length < other.length;
    if (!is_short) narrowest = was_short ? other.narrowest : std::max(narrowest, other.narrowest);
    length = std::max(length, other.length);
  }
};

}  // namespace spillway
