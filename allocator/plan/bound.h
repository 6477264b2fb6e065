// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/plan/step_profile.h"

namespace spillway {

/// Lower bound on the duration of a step under any plan, in seconds.
struct StepBound {
  double seconds = 0;
  double forward = 0;  // its part in the forward pass
  double backward = 0;
  std::uint64_t recomputed = 0;  // bytes recomputed at the bound

  /// The resource that determines the bound.
  enum class Limit : std::uint8_t { kCompute, kRecompute, kLinkOut, kLinkIn };
  Limit limit = Limit::kCompute;
};

/// Lower bound on the duration of the step with at most `budget` bytes allocated, whatever is
/// offloaded or recomputed.
///
/// Let K(k) be the bytes allocated at event k if everything is kept, t(k) the seconds of compute
/// before it, and R(k) the recomputable bytes that are not resident there. Let C(r), O(b) and I(b)
/// be the least seconds to recompute r bytes, copy b bytes out, and copy b bytes in. Storages and
/// parts of them count, the cheapest per byte first. If r bytes are recomputed, then E(k) = K(k) -
/// budget - min(r, R(k)) bytes must be on the host at event k, if that is positive. R(k) includes
/// operands (Operand) as if no storage were recomputed from them. The copies out begin after the
/// first storage was saved. The copies in end before the last use; storages without a later use are
/// not copied in, so their I and C are zero. Hence
///
///   forward  >= max(t_f, max over k in it of: t_first + O(E(k)) + t_f - t(k))
///   backward >= max(t_b + C(r), max over k in it of: t(k) - t_f + I(E(k)) + t_end - t_last)
///
/// The bound is the minimum of the sum over r; the sum is convex in r. It is the fluid bound of
/// roofline models, with the room at each event instead of that of one prefix.
/// Requires: profile.timed().
StepBound lower_bound(const StepProfile& profile, Bytes budget);

}  // namespace spillway
