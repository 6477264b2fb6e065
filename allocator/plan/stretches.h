// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/plan/step_profile.h"

#include <cstddef>
#include <vector>

namespace spillway {

/// Events in which a candidate is or may be absent, from <= e < to: a window, or an operand's
/// interval (Operand), over which a window extends if nothing is recomputed from the storage.
struct Stretch {
  std::size_t from = 0;
  std::size_t to = 0;
  double bytes = 0;
  double out = 0;  // least seconds of its copies out before these events
  double in = 0;   // least seconds of its copies in after them
  bool recomputable = false;
  bool first = true;  // it was not fetched or recomputed before
};

/// The stretches of all candidates. `first_use`: first_uses() with everything offloaded.
/// Requires: profile.timed().
std::vector<Stretch> stretches_of(const StepProfile& profile,
                                  const std::vector<std::size_t>& first_use);

}  // namespace spillway
