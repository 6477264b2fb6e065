// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/base/mutex.h"
#include "allocator/driver/handles.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

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

class Accounting;

/// Counters per tag, allocated page by page: most tag ids are never used.
template <typename Entry>
class TagPages {
 public:
  static constexpr std::size_t kPage = 256;
  using Page = std::array<Entry, kPage>;

  Entry& of(TagId tag) {
    const std::size_t index = static_cast<std::size_t>(tag) % (kPage * kPage);
    std::unique_ptr<Page>& page = pages_[index / kPage];
    if (page == nullptr) page = std::make_unique<Page>();
    return (*page)[index % kPage];
  }

  /// The entry of `of`; null if its page has not been created.
  [[nodiscard]] Entry* known(TagId tag) {
    const std::size_t index = static_cast<std::size_t>(tag) % (kPage * kPage);
    Page* const page = pages_[index / kPage].get();
    return page == nullptr ? nullptr : &(*page)[index % kPage];
  }

  /// Calls `see(tag, entry)` for each entry of the existing pages, in id order.
  template <typename See>
  void each(See see) {
    for (std::size_t page = 0; page < kPage; ++page) {
      for (std::size_t i = 0; pages_[page] != nullptr && i < kPage; ++i)
        see(static_cast<TagId>(page * kPage + i), (*pages_[page])[i]);
    }
  }

 private:
  std::array<std::unique_ptr<Page>, kPage> pages_;
};

/// One stream's counters of allocated bytes and blocks, a share of each total in Accounting. It has
/// cache lines of its own, so threads that use different streams do not contend.
/// Threads: safe.
class alignas(64) Account {
 public:
  Account(Accounting& accounting, CUstream stream) : stream_(stream), accounting_(accounting) {}

  void hand_out(TagId tag, Bytes size, Bytes requested) {
    std::int64_t least = 0;  // negative if one of them is negative
    {
      const LightLock lock(mutex_);
      TagShare& tagged = tags_.of(tag);
      ++tagged.blocks;
      least = allocated_.add(size.count()) | requested_.add(requested.count()) | blocks_.add(1) |
              tagged.bytes.add(size.count());
    }
    if (least < 0) settle(tag);
  }

  void take_back(TagId tag, Bytes size, Bytes requested) {
    const LightLock lock(mutex_);
    TagShare& tagged = tags_.of(tag);
    --tagged.blocks;
    tagged.bytes.remove(size.count());
    allocated_.remove(size.count());
    blocks_.remove(1);
    requested_.remove(requested.count());
  }

  void retag(TagId from, TagId to, Bytes size);

 private:
  friend class Accounting;

  struct TagShare {
    Share bytes;
    std::int64_t blocks = 0;
  };

  void settle(TagId tag);

  LightMutex mutex_;
  Share allocated_ SPILLWAY_GUARDED_BY(mutex_);
  Share requested_ SPILLWAY_GUARDED_BY(mutex_);
  Share blocks_ SPILLWAY_GUARDED_BY(mutex_);
  const CUstream stream_;
  Accounting& accounting_;
  TagPages<TagShare> tags_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
