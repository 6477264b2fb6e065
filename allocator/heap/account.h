// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/base/mutex.h"
#include "allocator/driver/handles.h"
#include "allocator/heap/shared_total.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace spillway {

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
