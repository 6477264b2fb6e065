// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/reserved_margin.h"

#include <algorithm>

namespace spillway {
namespace {

/// Plans with another layout reserve slightly more or less. Without slack, the margin would take
/// many plans to settle.
constexpr std::uint64_t kSlackShare = 128;
/// Fragmentation is at most this share of a budget, or of the bytes that a step allocates within
/// it, and at most a page per storage. Measured with models of 10^8 to 10^10 parameters, in steps
/// with planned addresses and without.
constexpr std::uint64_t kBetween = 36;
constexpr std::uint64_t kBetweenMade = 6;
/// Its uncertainty as a share. Steps that can do with less adapt; steps that need all their budget
/// cannot.
constexpr std::uint64_t kSpareShare = 2;

}  // namespace

Bytes PredictedReserved::margin(Bytes budget, std::size_t storages) const {
  return memory_ ? memory_->stranded + between(budget, storages) : Bytes{};
}

Bytes PredictedReserved::spare(Bytes budget, std::size_t storages) const {
  return memory_ ? Bytes{between(budget, storages).count() / kSpareShare} : Bytes{};
}

Bytes PredictedReserved::between(Bytes budget, std::size_t storages) const {
  const std::uint64_t made = budget.count() - std::min(budget.count(), memory_->allocated.count());
  const std::uint64_t share = std::min(budget.count() / kBetween, made / kBetweenMade);
  return Bytes{std::min(share, storages * memory_->page.count())};
}

Bytes PredictedReserved::between_with(Bytes allocated, std::size_t storages) const {
  // Any of the bounds may be the smallest.
  const std::uint64_t bytes = (allocated + memory_->stranded).count();
  const std::uint64_t made = bytes - std::min(bytes, memory_->allocated.count());
  const std::uint64_t share = std::min(bytes / (kBetween - 1), made / (kBetweenMade - 1)) + 1;
  return Bytes{std::min(share, storages * memory_->page.count())};
}

Bytes PredictedReserved::budget_leaving(Bytes allocated, std::size_t storages) const {
  return memory_ ? allocated + memory_->stranded + between_with(allocated, storages) : allocated;
}

Bytes PredictedReserved::budget_for(Bytes allocated, std::size_t storages) const {
  if (!memory_) return allocated;
  return budget_leaving(allocated, storages) +
         Bytes{between_with(allocated, storages).count() / kSpareShare};
}

bool ReservedMargin::observe(Bytes most, Bytes budget) {
  if (most <= budget) {
    exceeded_ = false;
    return false;
  }
  exceeded_ = !exceeded_;
  if (exceeded_) return false;
  lacks(most - budget, budget);
  return true;
}

void ReservedMargin::lacks(Bytes missing, Bytes budget) {
  exceeded_ = false;
  measured_ = bytes_ + missing + Bytes{budget.count() / kSlackShare};
}

}  // namespace spillway
