// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/regions.h"

#include <bit>

namespace spillway {

bool Regions::add(std::unique_ptr<Region> region, Range piece) {
  const std::size_t count = piece_count_.load(std::memory_order_relaxed);
  std::size_t at = 0;
  while (at < count && pieces_[at].begin != piece.begin)
    ++at;
  if (at == kMaxPieces) return false;
  if (at == count) {
    pieces_[at].begin = piece.begin;
    pieces_[at].shift = static_cast<unsigned>(std::countr_zero(region->range().size.count()));
    piece_count_.store(count + 1, std::memory_order_release);
  }
  const std::uint64_t index =
      distance(piece.begin, region->range().begin).count() >> pieces_[at].shift;
  pieces_[at].regions[index].store(region.get(), std::memory_order_release);

  Table* table = by_key_.load(std::memory_order_relaxed);
  if ((all_.size() + 1) * 2 > table->size()) {
    table = new_table(table->size() * 2);
    for (const auto& known : all_)
      enter(*table, known.get());
    by_key_.store(table, std::memory_order_release);
  }
  enter(*table, region.get());
  all_.push_back(std::move(region));
  return true;
}

void Regions::enter(Table& table, Region* region) {
  std::size_t i = hash(region->key());
  while (table[i % table.size()].load(std::memory_order_relaxed) != nullptr)
    ++i;
  table[i % table.size()].store(region, std::memory_order_release);
}

}  // namespace spillway
