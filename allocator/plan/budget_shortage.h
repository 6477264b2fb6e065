// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"

namespace spillway {

/// The budget that a step would have needed.
struct BudgetShortage {
  Bytes least;
  Bytes begin;        // allocated when the step began
  Bytes activations;  // storages that it saved, on the device at its peak
  /// `least` is only a lower bound: no optimizer step has been measured after this step, nor after
  /// one that began with the same allocated bytes.
  bool lower_bound = false;
  /// Storages of this step stayed on the device because no host memory could be pinned for them.
  bool host_memory_short = false;
};

}  // namespace spillway
