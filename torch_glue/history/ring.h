// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace spillway {

/// The last entries of a series. Threads: guarded by the owner's lock.
template <typename Entry>
class Ring {
 public:
  /// Adds an entry. Returns the entry that it replaces, so that the caller can destroy it without a
  /// lock.
  std::optional<Entry> push(Entry entry) {
    if (entries_.size() < most_) {
      entries_.push_back(std::move(entry));
      return std::nullopt;
    }
    std::swap(entries_[next_], entry);
    next_ = (next_ + 1) % most_;
    return entry;
  }

  /// Limits the ring to `most` entries (at least one) and drops the oldest beyond that.
  void resize(size_t most) {
    std::vector<Entry> kept = in_order();
    most_ = std::max<size_t>(1, most);
    next_ = 0;
    if (kept.size() > most_) kept.erase(kept.begin(), kept.end() - static_cast<long>(most_));
    entries_ = std::move(kept);
  }

  void clear() {
    entries_.clear();
    next_ = 0;
  }

  [[nodiscard]] std::vector<Entry> in_order() const {
    std::vector<Entry> all(entries_.begin() + static_cast<long>(next_), entries_.end());
    all.insert(all.end(), entries_.begin(), entries_.begin() + static_cast<long>(next_));
    return all;
  }

 private:
  std::vector<Entry> entries_;
  size_t next_ = 0;  // of a full ring: the oldest entry
  size_t most_ = 1;
};

}  // namespace spillway
