// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/lifetime/allocation_curve.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace spillway {

struct RecordedStep;
struct StepProfile;
enum class Action : std::uint8_t;

/// The storage was on the device at the places from <= p < to only because others were recomputed
///  from it. Where the plan moves or keeps all of these, it stays offloaded for so long.
struct Operand {
  static constexpr std::size_t kAlways = std::numeric_limits<std::size_t>::max();

  struct Product {
    std::size_t storage = 0;
    /// The operand, an earlier one of the same list, as which the product was computed then;
    /// kAlways where that was wanted by itself.
    std::size_t within = kAlways;

    bool operator==(const Product&) const = default;
  };

  std::size_t storage = 0;
  std::size_t from = 0;
  std::size_t to = 0;
  std::uint64_t bytes = 0;
  std::vector<Product> products{};
};

/// Those of a recorded step, in places of its curve. Of one storage a later place comes first.
std::vector<Operand> operands_of(const StepCurve& curve);

/// What is live where the curve ends, without what nothing but products has asked for.
Bytes needed_so_far(const StepCurve& curve);

/// Whether something is recomputed from each operand of the profile in a step with these
/// actions.
std::vector<bool> operands_in_use(const StepProfile& profile, const std::vector<Action>& actions);

/// What an operand's storage that is recomputed takes where that is later than recorded,
/// because nothing is recomputed from it before: besides the storage, while it is computed.
struct ComputedLater {
  std::size_t place = 0;  // the number of places where it is not wanted any more
  std::uint64_t bytes = 0;
};

ComputedLater computed_later(const RecordedStep& step, const Operand& operand);

/// Where the operand's storage is wanted, if nothing is recomputed from it: at its end, or,
/// where the storage was released then, when that was wanted again.
std::size_t offloaded_until(const RecordedStep& step, const Operand& operand);

/// By storage where it is wanted for the first time in a step with these actions: at the beginning
/// of that place, or never, the number of places.
std::vector<std::size_t> wanted_places(const StepProfile& profile,
                                       const std::vector<Action>& actions);
/// The same; `in_use`: operands_in_use() of the actions.
std::vector<std::size_t> wanted_places(const StepProfile& profile, const std::vector<bool>& in_use);

}  // namespace spillway
