// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace spillway {

/// The part of a SharedTotal that one account (Account) changes. The account may add to it within
/// its grant, the bytes by which it may raise the total without any other lock. When the grant is
/// used up, the account settles: under the total's lock it gets a larger grant, or the total's
/// peak is raised.
struct Share {
  std::int64_t spare = 0;    // unused part of the grant; negative: the account has exceeded it
  std::int64_t allowed = 0;  // value of `spare` when the total was last updated

  /// Adds to the share and returns what is left of the grant. If that is negative, the total may
  /// have exceeded its peak and the account must settle.
  std::int64_t add(std::uint64_t count) { return spare -= static_cast<std::int64_t>(count); }

  void remove(std::uint64_t count) { spare += static_cast<std::int64_t>(count); }

  /// The amount that it has added to the total since the last update.
  [[nodiscard]] std::int64_t change() const { return allowed - spare; }
};

/// A total of several shares, with its exact peak. The shares' accounts count without a common
/// lock; `value` is the total as of the last publish of each share.
///
/// `value` plus all grants never exceeds `peak`. While every share stays within its grant, the
/// total cannot have exceeded its peak, and the shares need no common lock. A share that has
/// exceeded its grant counts as an addition that is about to happen.
/// Threads: publish, and the functions that require it, need all shares locked. grant needs the
/// lock of its share.
class SharedTotal {
 public:
  [[nodiscard]] std::uint64_t value() const { return value_; }

  [[nodiscard]] std::uint64_t peak() const { return peak_; }

  /// Grants a share the amount that it has added, out of the ungranted amount. Returns false if
  /// that is too small.
  bool grant(Share& share) {
    const std::int64_t need = -share.spare;
    if (need <= 0) return true;
    const std::int64_t room = this->room();
    if (need > room) return false;
    // It grants more only while plenty is left. Near the peak each share gets the amount it uses,
    // so that shares that form the peak together stop settling.
    const std::int64_t left = room - need;
    const std::int64_t more = left > static_cast<std::int64_t>(peak_ / 4) ? left / 4 : 0;
    allow(share, need + more);
    return true;
  }

  /// Updates the total; the grant that is left to the share is unchanged.
  void publish(Share& share) {
    value_ += static_cast<std::uint64_t>(share.change());
    granted_ -= share.change();
    share.allowed = share.spare;
  }

  /// Whether the total exceeds its peak. Requires: publish.
  [[nodiscard]] bool passes_peak() const { return value_ > peak_; }

  /// Takes back half of the unused grant of a share. Requires: publish.
  void reclaim_half(Share& share) {
    if (share.spare > 0) allow(share, -(share.spare + 1) / 2);
  }

  /// Takes back all of the unused grant.
  void reclaim(Share& share) {
    if (share.spare > 0) allow(share, -share.spare);
  }

  /// Raises the peak and grants the share the amount that it has added.
  /// Requires: passes_peak, and reclaim from each share.
  void raise_peak(Share& share) {
    allow(share, -share.spare);
    peak_ = value_;
  }

  /// The total was higher by `more` for a moment; true if that is a new peak. Requires: publish.
  bool passed(std::uint64_t more) {
    const bool raised = value_ + more > peak_;
    peak_ = std::max(peak_, value_ + more);
    return raised;
  }

  /// Resets the peak to the present total. Requires: publish, and reclaim from each share.
  void reset_peak() { peak_ = value_; }

 private:
  [[nodiscard]] std::int64_t room() const {
    return static_cast<std::int64_t>(peak_ - value_) - granted_;
  }

  void allow(Share& share, std::int64_t more) {
    share.spare += more;
    share.allowed += more;
    granted_ += more;
  }

  std::uint64_t value_ = 0;
  std::uint64_t peak_ = 0;
  std::int64_t granted_ = 0;  // sum of all grants
};

}  // namespace spillway
