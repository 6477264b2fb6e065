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

namespace spillway {

/// Bytes of live blocks in units of 512 and their number in one word, so that both change at once.
class LiveCount {
 public:
  static constexpr unsigned kBlockBits = 26;

  struct Value {
    std::uint64_t word;

    [[nodiscard]] Bytes bytes() const { return Bytes{(word >> kBlockBits) * 512}; }

    [[nodiscard]] std::uint64_t blocks() const { return word & ((1ULL << kBlockBits) - 1); }
  };

  Value add(Bytes size) {
    const std::uint64_t one = one_block(size);
    return {word_.fetch_add(one, std::memory_order_relaxed) + one};
  }

  void remove(Bytes size) { word_.fetch_sub(one_block(size), std::memory_order_relaxed); }

  [[nodiscard]] Value value() const { return {word_.load(std::memory_order_relaxed)}; }

 private:
  static std::uint64_t one_block(Bytes size) { return (size.count() / 512) << kBlockBits | 1; }

  std::atomic<std::uint64_t> word_{0};
};

/// The largest value since the last reset. Threads: safe.
class Peak {
 public:
  /// True where `value` is a new peak.
  bool raise(std::uint64_t value) {
    std::uint64_t peak = value_.load(std::memory_order_relaxed);
    while (value > peak) {
      if (value_.compare_exchange_weak(peak, value, std::memory_order_relaxed)) return true;
    }
    return false;
  }

  void reset(std::uint64_t value) { value_.store(value, std::memory_order_relaxed); }

  [[nodiscard]] std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// What a heap has handed out and what it holds, over all its regions; peaks are exact.
/// Threads: safe.
class Books {
 public:
  explicit Books(const HeapOptions& options) : away_(options.away), limit_(options.limit) {}

  void hand_out(TagId tag, Bytes size, Bytes requested) {
    const LiveCount::Value live = live_.add(size);
    const std::uint64_t asked =
        requested_.fetch_add(requested.count(), std::memory_order_relaxed) + requested.count();
    if (asked > requested_peak_.value()) requested_peak_.raise(asked);
    if (live.blocks() > blocks_peak_.value()) blocks_peak_.raise(live.blocks());
    if (live.bytes().count() > live_peak_.value()) raise_live_peak(live.bytes());
    Tag& books = tag_of(tag);
    const LiveCount::Value tagged = books.live.add(size);
    if (tagged.bytes().count() > books.live_peak.value()) {
      books.live_peak.raise(tagged.bytes().count());
    }
  }

  void take_back(TagId tag, Bytes size, Bytes requested) {
    live_.remove(size);
    requested_.fetch_sub(requested.count(), std::memory_order_relaxed);
    tag_of(tag).live.remove(size);
  }

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
  struct Tag {
    LiveCount live;
    Peak live_peak;
  };

  static constexpr std::size_t kPage = 256;
  using Page = std::array<Tag, kPage>;

  Tag& tag_of(TagId tag) {
    const auto index = static_cast<std::size_t>(tag) % (kPage * kPage);
    Page* const page = pages_[index / kPage].load(std::memory_order_acquire);
    return page != nullptr ? (*page)[index % kPage] : make_page(index);
  }

  Tag& make_page(std::size_t index);
  void raise_live_peak(Bytes live);
  [[nodiscard]] Bytes away() const;

  const std::atomic<std::uint64_t>* const away_;
  LiveCount live_;
  std::atomic<std::uint64_t> requested_{0};
  Peak live_peak_;
  Peak requested_peak_;
  Peak blocks_peak_;
  std::array<std::atomic<Page*>, kPage> pages_{};

  mutable Mutex mutex_;  // for what changes rarely
  std::vector<std::unique_ptr<Page>> owned_ SPILLWAY_GUARDED_BY(mutex_);
  Bytes limit_ SPILLWAY_GUARDED_BY(mutex_);
  Bytes soft_limit_ SPILLWAY_GUARDED_BY(mutex_);
  HeapStats slow_ SPILLWAY_GUARDED_BY(mutex_);  // held bytes, what was away, driver calls
};

}  // namespace spillway
