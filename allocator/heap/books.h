// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/base/mutex.h"
#include "allocator/heap/heap.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace spillway {

/// The most that requests amount to at one time which begin with nothing live and end so.
struct PassingBlocks {
  std::uint64_t bytes = 0;
  std::uint64_t requested = 0;
  std::uint64_t blocks = 0;
  std::vector<std::pair<TagId, std::uint64_t>> tags;  // bytes, each at its own time
};

/// What a heap has handed out and what it holds, over all its regions; peaks are exact: whoever
/// hands out or takes back changes all the counts under one lock, which is held for a few
/// nanoseconds and costs one atomic exchange.
/// Threads: safe.
// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): its locks are apart
class Books {
 public:
  explicit Books(const HeapOptions& options) : away_(options.away), limit_(options.limit) {}

  void hand_out(TagId tag, Bytes size, Bytes requested) {
    const LightLock lock(live_mutex_);
    live_.add(size);
    requested_ += requested.count();
    if (requested_ > requested_peak_) requested_peak_ = requested_;
    if (live_.blocks > blocks_peak_) blocks_peak_ = live_.blocks;
    if (live_.bytes > live_.peak) {
      live_.peak = live_.bytes;
      away_at_live_peak_ = away();
    }
    Live& tagged = tag_of(tag);
    tagged.add(size);
    tagged.raise_peak();
  }

  void take_back(TagId tag, Bytes size, Bytes requested) {
    const LightLock lock(live_mutex_);
    live_.remove(size);
    requested_ -= requested.count();
    tag_of(tag).remove(size);
  }

  /// So many were handed out and taken back again.
  void passed(const PassingBlocks& most);

  void retag(TagId from, TagId to, Bytes size);

  void mapped(Bytes size, std::uint64_t chunks);
  void unmapped(Bytes size);
  void stuck(Bytes size);

  /// How many more bytes may be held.
  [[nodiscard]] Bytes room() const;
  void set_limit(Bytes limit);
  [[nodiscard]] Bytes limit() const;
  void set_soft_limit(Bytes limit);
  /// Whether holding `more` bytes would pass the soft limit.
  [[nodiscard]] bool passes_soft_limit(Bytes more) const;
  void count_out_of_memory();

  /// Fills in what the books know.
  void read(HeapStats& stats) const;
  /// The tags with live blocks or a peak, by id: live, live_peak, blocks.
  [[nodiscard]] std::vector<HeapTagInfo> tags() const;
  void reset_peaks();

 private:
  struct Live {
    std::uint64_t bytes = 0;
    std::uint64_t blocks = 0;
    std::uint64_t peak = 0;  // of bytes, since the last reset

    void add(Bytes size) {
      bytes += size.count();
      ++blocks;
    }

    void remove(Bytes size) {
      bytes -= size.count();
      --blocks;
    }

    void raise_peak() {
      if (bytes > peak) peak = bytes;
    }
  };

  static constexpr std::size_t kPage = 256;
  using Page = std::array<Live, kPage>;

  Live& tag_of(TagId tag) SPILLWAY_REQUIRES(live_mutex_) {
    const auto index = static_cast<std::size_t>(tag) % (kPage * kPage);
    std::unique_ptr<Page>& page = pages_[index / kPage];
    if (page == nullptr) page = std::make_unique<Page>();
    return (*page)[index % kPage];
  }

  [[nodiscard]] std::uint64_t away() const {
    return away_ == nullptr ? 0 : away_->load(std::memory_order_relaxed);
  }

  const std::atomic<std::uint64_t>* const away_;

  // In one line of the cache with its lock, which no other lock is taken under.
  alignas(64) mutable LightMutex live_mutex_;
  std::uint64_t requested_ SPILLWAY_GUARDED_BY(live_mutex_) = 0;
  std::uint64_t requested_peak_ SPILLWAY_GUARDED_BY(live_mutex_) = 0;
  Live live_ SPILLWAY_GUARDED_BY(live_mutex_);
  std::uint64_t blocks_peak_ SPILLWAY_GUARDED_BY(live_mutex_) = 0;
  std::uint64_t away_at_live_peak_ SPILLWAY_GUARDED_BY(live_mutex_) = 0;
  std::array<std::unique_ptr<Page>, kPage> pages_ SPILLWAY_GUARDED_BY(live_mutex_);

  alignas(64) mutable Mutex mutex_;  // for what changes rarely
  Bytes limit_ SPILLWAY_GUARDED_BY(mutex_);
  Bytes soft_limit_ SPILLWAY_GUARDED_BY(mutex_);
  HeapStats slow_ SPILLWAY_GUARDED_BY(mutex_);  // held bytes, what was away then, driver calls
};

}  // namespace spillway
