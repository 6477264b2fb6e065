// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/books.h"

#include <algorithm>
#include <limits>

namespace spillway {

void Books::retag(TagId from, TagId to, Bytes size) {
  tag_of(from).live.remove(size);
  Tag& books = tag_of(to);
  books.live_peak.raise(books.live.add(size).bytes().count());
}

void Books::mapped(Bytes size, std::uint64_t chunks) {
  const Lock lock(mutex_);
  slow_.driver_allocations += chunks;
  slow_.held_total += size;
  slow_.held += size;
  if (slow_.held > slow_.held_peak) {
    slow_.held_peak = slow_.held;
    slow_.away_at_held_peak = away();
  }
}

void Books::unmapped(Bytes size) {
  const Lock lock(mutex_);
  ++slow_.driver_releases;
  slow_.held -= size;
}

void Books::stuck(Bytes size) {
  const Lock lock(mutex_);
  slow_.held += size;
  slow_.held_peak = std::max(slow_.held_peak, slow_.held);
}

Bytes Books::room() const {
  const Lock lock(mutex_);
  if (limit_.zero()) return Bytes{std::numeric_limits<std::uint64_t>::max()};
  return limit_ > slow_.held ? limit_ - slow_.held : Bytes{};
}

void Books::set_limit(Bytes limit) {
  const Lock lock(mutex_);
  limit_ = limit;
}

Bytes Books::limit() const {
  const Lock lock(mutex_);
  return limit_;
}

void Books::set_soft_limit(Bytes limit) {
  const Lock lock(mutex_);
  soft_limit_ = limit;
}

bool Books::passes_soft_limit(Bytes more) const {
  const Lock lock(mutex_);
  return !soft_limit_.zero() && slow_.held + more > soft_limit_;
}

void Books::count_out_of_memory() {
  const Lock lock(mutex_);
  ++slow_.out_of_memory;
}

void Books::read(HeapStats& stats) const {
  const Lock lock(mutex_);
  stats = slow_;
  const LiveCount::Value live = live_.value();
  stats.live = live.bytes();
  stats.live_blocks = live.blocks();
  stats.requested = Bytes{requested_.load(std::memory_order_relaxed)};
  stats.live_peak = Bytes{live_peak_.value()};
  stats.live_blocks_peak = blocks_peak_.value();
  stats.requested_peak = Bytes{requested_peak_.value()};
}

std::vector<HeapTagInfo> Books::tags() const {
  std::vector<HeapTagInfo> tags;
  for (std::size_t page = 0; page < kPage; ++page) {
    const Page* const known = pages_[page].load(std::memory_order_acquire);
    for (std::size_t i = 0; known != nullptr && i < kPage; ++i) {
      const Tag& tag = (*known)[i];
      const LiveCount::Value live = tag.live.value();
      if (live.blocks() == 0 && tag.live_peak.value() == 0) continue;
      HeapTagInfo info;
      info.tag = static_cast<TagId>(page * kPage + i);
      info.live = live.bytes();
      info.blocks = live.blocks();
      info.live_peak = Bytes{tag.live_peak.value()};
      tags.push_back(info);
    }
  }
  return tags;
}

void Books::reset_peaks() {
  const Lock lock(mutex_);
  const LiveCount::Value live = live_.value();
  live_peak_.reset(live.bytes().count());
  blocks_peak_.reset(live.blocks());
  requested_peak_.reset(requested_.load(std::memory_order_relaxed));
  slow_.held_peak = slow_.held;
  slow_.away_at_live_peak = slow_.away_at_held_peak = away();
  for (const auto& page : owned_) {
    for (Tag& tag : *page)
      tag.live_peak.reset(tag.live.value().bytes().count());
  }
}

Books::Tag& Books::make_page(std::size_t index) {
  const Lock lock(mutex_);
  std::atomic<Page*>& page = pages_[index / kPage];
  if (page.load(std::memory_order_relaxed) == nullptr) {
    owned_.push_back(std::make_unique<Page>());
    page.store(owned_.back().get(), std::memory_order_release);
  }
  return (*page.load(std::memory_order_relaxed))[index % kPage];
}

void Books::raise_live_peak(Bytes live) {
  const Lock lock(mutex_);
  if (live_peak_.raise(live.count())) slow_.away_at_live_peak = away();
}

Bytes Books::away() const {
  return Bytes{away_ == nullptr ? 0 : away_->load(std::memory_order_relaxed)};
}

}  // namespace spillway
