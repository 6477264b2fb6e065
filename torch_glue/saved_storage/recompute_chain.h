// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"

#include <algorithm>

namespace spillway {

/// The tensors that are recomputed for one tensor, one from another, itself included.
struct RecomputeChain {
  int length = 0;     // an expensive operator counts twice; zero: nothing is recomputed
  Bytes narrowest{};  // of its saved tensors: the chain ends where one is kept or offloaded

  /// Of operands of one operator. The wider operand counts: to keep the other one does not end the
  /// chain.
  void join(const RecomputeChain& other) {
    length = std::max(length, other.length);
    narrowest = std::max(narrowest, other.narrowest);
  }
};

}  // namespace spillway
