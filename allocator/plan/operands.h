// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/lifetime/live_curve.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace spillway {

struct StepProfile;
enum class Action : std::uint8_t;

/// The storage was on the device at the places from <= p < to only because `product` was computed
/// again from it. Where the plan moves or keeps that one, it stays away for so long.
struct Operand {
  static constexpr std::size_t kAlways = std::numeric_limits<std::size_t>::max();

  std::size_t storage = 0;
  std::size_t from = 0;
  std::size_t to = 0;
  std::uint64_t bytes = 0;
  std::size_t product = 0;
  /// Of the same list, with the product as its storage: the product was computed then only while
  /// that holds. kAlways where it was wanted by itself.
  std::size_t within = kAlways;
};

/// Those of a recorded step, in places of its curve, by storage and then by place. What two products
/// wanted for the time of both is not among them.
std::vector<Operand> operands_of(const StepCurve& curve);

/// What is live where the curve ends, without what nobody but products has asked for.
Bytes needed_so_far(const StepCurve& curve);

/// Whether each of the profile's operands is there for its product in a step with these actions.
std::vector<bool> operands_in_use(const StepProfile& profile, const std::vector<Action>& actions);

/// By storage where it is wanted for the first time in a step with these actions: at the beginning of
/// that place, or never, the number of places.
std::vector<std::size_t> wanted_places(const StepProfile& profile,
                                       const std::vector<Action>& actions);

}  // namespace spillway
