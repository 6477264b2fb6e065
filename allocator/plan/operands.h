// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/lifetime/allocation_curve.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace spillway {

struct StepProfile;
enum class Action : std::uint8_t;

/// An input of recomputation. In the events from <= p < to, the storage was on the device only
/// because others were recomputed from it. If the plan offloads or keeps all of these, it stays
/// offloaded during those events.
struct Operand {
  static constexpr std::size_t kAlways = std::numeric_limits<std::size_t>::max();

  struct Product {
    std::size_t storage = 0;
    /// The earlier operand of the list for which the product was recomputed; kAlways if the product
    /// was used directly.
    std::size_t within = kAlways;

    bool operator==(const Product&) const = default;
  };

  std::size_t storage = 0;
  std::size_t from = 0;
  std::size_t to = 0;
  std::uint64_t bytes = 0;
  std::vector<Product> products{};
};

/// The operands of a recorded step, in events of its curve. For one storage, later events come
/// first.
std::vector<Operand> operands_of(const StepCurve& curve);

/// The storages of the curve that were used for products only, in order.
std::vector<std::size_t> operands_only_of(const StepCurve& curve);

/// Allocated bytes at the end of the curve, without storages that only products have used.
Bytes needed_so_far(const StepCurve& curve);

/// Whether a storage is recomputed from each operand of the profile in a step with these actions.
std::vector<bool> operands_in_use(const StepProfile& profile, const std::vector<Action>& actions);

/// The cost of recomputing an operand's storage later than recorded, because nothing is recomputed
/// from it earlier: bytes in addition to the storage, during its recomputation.
struct ComputedLater {
  std::size_t event = 0;  // the number of events if it is never used again
  std::uint64_t bytes = 0;
};

ComputedLater computed_later(const StepProfile& profile, const Operand& operand);

/// The event of the operand storage's next use if nothing is recomputed from it. That is the
/// operand's end; if the storage was released there, its next use.
std::size_t offloaded_until(const StepProfile& profile, const Operand& operand);

/// By storage the event at whose beginning it is first used in a step with these actions; the
/// number of events if it is never used.
std::vector<std::size_t> first_uses(const StepProfile& profile, const std::vector<Action>& actions);
/// Likewise; `in_use`: operands_in_use() of the actions.
std::vector<std::size_t> first_uses(const StepProfile& profile,
                                    const std::vector<Action>& actions,
                                    const std::vector<bool>& in_use);

}  // namespace spillway
