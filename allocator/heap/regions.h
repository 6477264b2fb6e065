// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/heap/region.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace spillway {

/// The heap regions of a heap, by key and by address. They live as long as the heap.
/// Threads: look-ups take no lock; additions require the heap's lock.
class Regions {
 public:
  Regions() : by_key_(new_table(64)) {}

  /// Null if there is none.
  [[nodiscard]] Region* of(const RegionKey& key) const {
    const Table& table = *by_key_.load(std::memory_order_acquire);
    const std::size_t mask = table.size() - 1;  // its size is a power of two
    for (std::size_t i = hash(key);; ++i) {
      Region* const region = table[i & mask].load(std::memory_order_acquire);
      if (region == nullptr || region->key() == key) return region;
    }
  }

  /// The heap region whose range contains `at`; null if there is none.
  [[nodiscard]] Region* around(driver::DevicePtr at) const {
    const std::size_t count = piece_count_.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < count; ++i) {
      const Piece& piece = pieces_[i];
      // Below the piece, this is a very large number.
      const std::uint64_t index = (at.address() - piece.begin.address()) >> piece.shift;
      if (index < piece.regions.size()) {
        return piece.regions[index].load(std::memory_order_acquire);
      }
    }
    return nullptr;
  }

  /// All heap regions, in order of addition.
  [[nodiscard]] const std::vector<std::unique_ptr<Region>>& all() const { return all_; }

  /// Adds a heap region. Returns false if there are too many.
  /// Requires: no other one has its key; `piece` contains its range.
  bool add(std::unique_ptr<Region> region, Range piece);

 private:
  static constexpr std::size_t kMaxPieces = 512;
  using Table = std::vector<std::atomic<Region*>>;

  struct Piece {
    driver::DevicePtr begin;
    unsigned shift = 0;
    std::array<std::atomic<Region*>, AddressSpace::kRanges> regions{};
  };

  static std::size_t hash(const RegionKey& key) {
    const auto stream = reinterpret_cast<std::uintptr_t>(key.stream);
    const std::uint64_t mixed =
        (stream ^ (static_cast<std::uint64_t>(key.pool) << 32U)) * 0x9E3779B97F4A7C15U;
    return (mixed >> 40U) * 2 + static_cast<std::size_t>(key.tier) + key.index;
  }

  Table* new_table(std::size_t size) {
    return tables_.emplace_back(std::make_unique<Table>(size)).get();
  }

  static void enter(Table& table, Region* region);

  std::vector<std::unique_ptr<Region>> all_;
  // includes old tables: other threads may still read them
  std::vector<std::unique_ptr<Table>> tables_;
  std::atomic<Table*> by_key_;
  std::array<Piece, kMaxPieces> pieces_;
  std::atomic<std::size_t> piece_count_{0};
};

}  // namespace spillway
