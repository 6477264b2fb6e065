// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/books.h"

#include <algorithm>
#include <limits>

namespace spillway {

void Books::passed(const PassingBlocks& most) {
  const LightLock lock(live_mutex_);
  requested_peak_ = std::max(requested_peak_, requested_ + most.requested);
  blocks_peak_ = std::max(blocks_peak_, live_.blocks + most.blocks);
  if (live_.bytes + most.bytes > live_.peak) {
    live_.peak = live_.bytes + most.bytes;
    away_at_live_peak_ = away();
  }
  for (const auto& [tag, bytes] : most.tags) {
    Live& tagged = tag_of(tag);
    tagged.peak = std::max(tagged.peak, tagged.bytes + bytes);
  }
}

void Books::retag(TagId from, TagId to, Bytes size) {
  const LightLock lock(live_mutex_);
  tag_of(from).remove(size);
  Live& tagged = tag_of(to);
  tagged.add(size);
  tagged.raise_peak();
}

void Books::mapped(Bytes size, std::uint64_t chunks) {
  const Lock lock(mutex_);
  slow_.driver_allocations += chunks;
  slow_.held_total += size;
  slow_.held += size;
  if (slow_.held > slow_.held_peak) {
    slow_.held_peak = slow_.held;
    slow_.away_at_held_peak = Bytes{away()};
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
  const LightLock live_lock(live_mutex_);
  stats.live = Bytes{live_.bytes};
  stats.live_blocks = live_.blocks;
  stats.requested = Bytes{requested_};
  stats.live_peak = Bytes{live_.peak};
  stats.live_blocks_peak = blocks_peak_;
  stats.requested_peak = Bytes{requested_peak_};
  stats.away_at_live_peak = Bytes{away_at_live_peak_};
}

std::vector<HeapTagInfo> Books::tags() const {
  std::vector<HeapTagInfo> tags;
  const LightLock lock(live_mutex_);
  for (std::size_t page = 0; page < kPage; ++page) {
    for (std::size_t i = 0; pages_[page] != nullptr && i < kPage; ++i) {
      const Live& live = (*pages_[page])[i];
      if (live.blocks == 0 && live.peak == 0) continue;
      HeapTagInfo info;
      info.tag = static_cast<TagId>(page * kPage + i);
      info.live = Bytes{live.bytes};
      info.blocks = live.blocks;
      info.live_peak = Bytes{live.peak};
      tags.push_back(info);
    }
  }
  return tags;
}

void Books::reset_peaks() {
  const Lock lock(mutex_);
  slow_.held_peak = slow_.held;
  slow_.away_at_held_peak = Bytes{away()};
  const LightLock live_lock(live_mutex_);
  live_.peak = live_.bytes;
  blocks_peak_ = live_.blocks;
  requested_peak_ = requested_;
  away_at_live_peak_ = away();
  for (const auto& page : pages_) {
    if (page == nullptr) continue;
    for (Live& tag : *page)
      tag.peak = tag.bytes;
  }
}

}  // namespace spillway
