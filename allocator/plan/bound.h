// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/plan/step_profile.h"

namespace spillway {

/// What no plan can beat, in seconds.
struct StepBound {
  double seconds = 0;
  double forward = 0;  // of it
  double backward = 0;
  std::uint64_t recomputed = 0;  // bytes, where the bound is reached

  /// What decides it.
  enum class Limit : std::uint8_t { kCompute, kRecompute, kLinkOut, kLinkIn };
  Limit limit = Limit::kCompute;
};

/// The least that the step can take with at most `budget` live, whatever moves and whatever is
/// recomputed.
///
/// With K(k) the bytes that are live at place k where everything is kept, t(k) the seconds of
/// computing before it, R(k) the bytes that are offloaded there and can be recomputed, and
/// C(r), O(b), I(b) the least seconds in which memory of this many bytes is recomputed, copied
/// out and copied in, storages and parts of them, the cheapest per byte first: where r bytes are
/// recomputed, E(k) = K(k) - budget - min(r, R(k)) bytes must be on the host at place k, if that is
/// positive. R(k) has operands (Operand) as if nothing were recomputed from them. They have
/// left since the first storage was saved, and are fetched before the last use, or never where they
/// are never wanted again (I and C of those are zero), so
///
///   forward  >= max(t_f, max over k in it of: t_first + O(E(k)) + t_f - t(k))
///   backward >= max(t_b + C(r), max over k in it of: t(k) - t_f + I(E(k)) + t_end - t_last)
///
/// and the bound is the least sum over r, which is convex in r. It is the fluid bound of roofline
/// models, with the room of each place in the place of one prefix.
/// Requires: profile.timed().
StepBound lower_bound(const StepProfile& profile, Bytes budget);

}  // namespace spillway
