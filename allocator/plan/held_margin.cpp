// SPDX-License-Identifier: Apache-2.0
#include "allocator/plan/held_margin.h"

#include <algorithm>

namespace spillway {
namespace {

/// Plans that leave memory in other pieces hold a little more or less.
constexpr std::uint64_t kSlackShare = 128;
/// What differs by less than this share of the budget is alike.
constexpr std::uint64_t kAlikeShare = 1024;
/// Of the same plan so many steps in a row, and it holds too much: one may be on the way to where
/// its memory will be, and after two the heap has made room itself where it can.
constexpr int kMostOver = 3;
/// So often, and nothing more is hoped for.
constexpr int kMostInVain = 3;
/// The pieces between blocks take up so much of a budget, in steps without a heap's plan and with
/// one.
constexpr std::uint64_t kBetweenShare = 48;

}  // namespace

Bytes ForeseenHeld::margin(Bytes budget) const {
  return stranded_ ? *stranded_ + Bytes{budget.count() / kBetweenShare} : Bytes{};
}

Bytes ForeseenHeld::budget_for(Bytes live) const {
  if (!stranded_) return live;
  const std::uint64_t bytes = (live + *stranded_).count();
  return Bytes{bytes + bytes / (kBetweenShare - 1) + 1};
}

bool HeldMargin::lacks(Bytes lacking, Bytes budget, bool least) {
  if (chosen_ || least) return false;
  bytes_ += lacking + Bytes{budget.count() / kAlikeShare};
  return true;
}

bool HeldMargin::held(Bytes most, Bytes budget, bool least) {
  if (chosen_) return false;
  if (most <= budget) {
    note(most);
    over_ = in_vain_ = 0;
    return false;
  }
  if (++over_ < kMostOver) return false;
  over_ = 0;
  note(most);
  if (!least) {
    bytes_ += most - budget + Bytes{budget.count() / kSlackShare};
    return true;
  }
  if (++in_vain_ < kMostInVain) return false;
  chosen_ = true;
  const Bytes before = bytes_;
  bytes_ = best(Bytes{budget.count() / kAlikeShare});
  return bytes_ != before;
}

void HeldMargin::note(Bytes most) {
  if (tried_.empty() || tried_.back().margin != bytes_) {
    tried_.push_back({bytes_, most});
  } else {
    tried_.back().held = std::min(tried_.back().held, most);
  }
}

Bytes HeldMargin::best(Bytes alike) const {
  Bytes least = tried_.front().held;
  for (const Tried& each : tried_)
    least = std::min(least, each.held);
  const auto found = std::find_if(
      tried_.begin(), tried_.end(), [&](const Tried& each) { return each.held <= least + alike; });
  return found->margin;
}

}  // namespace spillway
