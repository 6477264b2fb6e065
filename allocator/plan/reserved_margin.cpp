// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/reserved_margin.h"

#include <algorithm>

namespace spillway {
namespace {

/// Plans that leave memory in other pieces hold a little more or less.
constexpr std::uint64_t kSlackShare = 128;
/// What differs by less than this share of the budget is alike.
constexpr std::uint64_t kAlikeShare = 1024;
/// Of the same plan this many steps in a row, and it holds too much: one may be on the way to where
/// its memory will be, and after two the heap has made room itself where it can.
constexpr int kMaxOver = 3;
/// So often, and nothing more is hoped for.
constexpr int kMaxNeedlessly = 3;
/// Fragmentation is such a share of a budget at most, or of what it leaves for what a
/// step makes, and a page for each storage: found with models of 10^8 to 10^10 parameters, in steps
/// with planned places and without.
constexpr std::uint64_t kBetween = 36;
constexpr std::uint64_t kBetweenMade = 6;
/// It may be more by such a share. Steps that can make do with less learn it; those that need all
/// that they may cannot.
constexpr std::uint64_t kSpareShare = 2;

}  // namespace

Bytes PredictedReserved::margin(Bytes budget, std::size_t storages) const {
  return memory_ ? memory_->stranded + between(budget, storages) : Bytes{};
}

Bytes PredictedReserved::spare(Bytes budget, std::size_t storages) const {
  return memory_ ? Bytes{between(budget, storages).count() / kSpareShare} : Bytes{};
}

Bytes PredictedReserved::between(Bytes budget, std::size_t storages) const {
  const std::uint64_t made = budget.count() - std::min(budget.count(), memory_->live.count());
  const std::uint64_t share = std::min(budget.count() / kBetween, made / kBetweenMade);
  return Bytes{std::min(share, storages * memory_->page.count())};
}

Bytes PredictedReserved::between_with(Bytes live, std::size_t storages) const {
  // Any of them may be the smallest.
  const std::uint64_t bytes = (live + memory_->stranded).count();
  const std::uint64_t made = bytes - std::min(bytes, memory_->live.count());
  const std::uint64_t share = std::min(bytes / (kBetween - 1), made / (kBetweenMade - 1)) + 1;
  return Bytes{std::min(share, storages * memory_->page.count())};
}

Bytes PredictedReserved::budget_leaving(Bytes live, std::size_t storages) const {
  return memory_ ? live + memory_->stranded + between_with(live, storages) : live;
}

Bytes PredictedReserved::budget_for(Bytes live, std::size_t storages) const {
  if (!memory_) return live;
  return budget_leaving(live, storages) + Bytes{between_with(live, storages).count() / kSpareShare};
}

bool ReservedMargin::lacks(Bytes lacking, Bytes budget, bool least) {
  if (chosen_ || least) return false;
  known_ = bytes_ + lacking + Bytes{budget.count() / kAlikeShare};
  return true;
}

bool ReservedMargin::held(Bytes most, Bytes budget, bool least) {
  if (chosen_) return false;
  if (most <= budget) {
    note(most);
    over_ = needlessly_ = 0;
    return false;
  }
  if (++over_ < kMaxOver) return false;
  over_ = 0;
  note(most);
  if (!least) {
    known_ = bytes_ + (most - budget) + Bytes{budget.count() / kSlackShare};
    return true;
  }
  if (++needlessly_ < kMaxNeedlessly) return false;
  chosen_ = true;
  known_ = best(Bytes{budget.count() / kAlikeShare});
  return known_ != bytes_;
}

void ReservedMargin::note(Bytes most) {
  if (tried_.empty() || tried_.back().margin != bytes_) {
    tried_.push_back({bytes_, most});
  } else {
    tried_.back().held = std::min(tried_.back().held, most);
  }
}

Bytes ReservedMargin::best(Bytes alike) const {
  Bytes least = tried_.front().held;
  for (const Tried& each : tried_)
    least = std::min(least, each.held);
  const auto found = std::find_if(
      tried_.begin(), tried_.end(), [&](const Tried& each) { return each.held <= least + alike; });
  return found->margin;
}

}  // namespace spillway
