// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/plan/step_profile.h"

namespace spillway {

/// Lower bound on the duration of a step under any plan, in seconds.
struct StepBound {
  double seconds = 0;
  std::uint64_t recomputed = 0;  // bytes recomputed at the bound

  /// The resource that determines the bound.
  enum class Limit : std::uint8_t { kCompute, kRecompute, kLinkOut, kLinkIn };
  Limit limit = Limit::kCompute;
};

/// Lower bound on the duration of the step with at most `budget` bytes allocated, whatever is
/// offloaded or recomputed.
///
/// Let K(k) be the bytes allocated at event k if everything is kept, t(k) the seconds of compute
/// before it, and R(k) the bytes of the windows at k that can be recomputed. If r bytes are
/// recomputed, then E(k) = K(k) - budget - min(r, R(k)) bytes of the windows at k must be on the
/// host, if that is positive. For windows at k, let O(k) be the least seconds of the copies out
/// that these bytes need before k, and I(k) that of their copies in after it: the cheapest windows
/// per byte, and parts of them, count first. C(r) is the least time to recompute r bytes. R, O and
/// I include operands (Operand) as if no storage were recomputed from them.
///
/// Copies out begin at the first event t_first at which one can, copies in end before the last use,
/// t_last. For any event b, at or before the first use that may recompute:
///
///   until b >= t(b) + max(0, max over k <= b of: t_first + O(k) - t(k))
///   since b >= max(t_end - t(b) + C(r), max over k >= b of: t(k) - t(b) + I(k) + t_end - t_last)
///
/// and the same without C(r) for a later b. The bound is the largest sum over b, at the r for which
/// it is smallest; it is convex in r. This is the fluid bound of roofline models, with the room at
/// each event instead of that of one prefix.
/// Requires: profile.timed().
StepBound lower_bound(const StepProfile& profile, Bytes budget);

}  // namespace spillway
