// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace spillway {

/// How far one account may still raise a total without asking.
struct Share {
  std::int64_t spare = 0;    // negative: it has gone further than that
  std::int64_t allowed = 0;  // what `spare` was when the total was last brought up to now

  /// What it may still do; where that is negative, the total may have passed its peak, and the code
  /// that owns the share asks for more.
  std::int64_t add(std::uint64_t count) { return spare -= static_cast<std::int64_t>(count); }

  void remove(std::uint64_t count) { spare += static_cast<std::int64_t>(count); }

  /// What it has added to the total since.
  [[nodiscard]] std::int64_t change() const { return allowed - spare; }
};

/// A number that several shares make up, and the most that it has been.
///
/// `value` and all that shares are allowed stay within `peak` together. So as long as no share
/// passes what it is allowed, the number cannot have passed its peak, and nothing needs to know
/// what the others do. A share that has passed it counts as one that is just about to. Threads:
/// publish, and what is said to need it, with all shares locked since; grant with its own.
class SharedTotal {
 public:
  [[nodiscard]] std::uint64_t value() const { return value_; }

  [[nodiscard]] std::uint64_t peak() const { return peak_; }

  /// Allows a share what it has done, out of what is allowed to nothing. False where that is less.
  bool grant(Share& share) {
    const std::int64_t need = -share.spare;
    if (need <= 0) return true;
    const std::int64_t room = this->room();
    if (need > room) return false;
    // More than it needs only as long as there is plenty: near the peak each gets what it uses, so
    // that shares which make up the peak together come to rest.
    const std::int64_t left = room - need;
    const std::int64_t more = left > static_cast<std::int64_t>(peak_ / 4) ? left / 4 : 0;
    allow(share, need + more);
    return true;
  }

  /// Brings the value up to now; what the share may still do stays as it is.
  void publish(Share& share) {
    value_ += static_cast<std::uint64_t>(share.change());
    granted_ -= share.change();
    share.allowed = share.spare;
  }

  /// Whether the number is more than it ever was. Requires: publish.
  [[nodiscard]] bool passes_peak() const { return value_ > peak_; }

  /// Takes half of what a share is allowed and does not use. Requires: publish.
  void reclaim_half(Share& share) {
    if (share.spare > 0) allow(share, -(share.spare + 1) / 2);
  }

  /// Takes all of it.
  void reclaim(Share& share) {
    if (share.spare > 0) allow(share, -share.spare);
  }

  /// Grants a share what it has done by a new peak. Requires: passes_peak, and reclaim from each.
  void raise_peak(Share& share) {
    allow(share, -share.spare);
    peak_ = value_;
  }

  /// The number has been that much more for a moment; true where that is a new peak. Requires:
  /// publish.
  bool passed(std::uint64_t more) {
    const bool raised = value_ + more > peak_;
    peak_ = std::max(peak_, value_ + more);
    return raised;
  }

  /// The peak is what the number is now. Requires: publish, and reclaim from each.
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
  std::int64_t granted_ = 0;  // the sum of what shares are allowed
};

}  // namespace spillway
