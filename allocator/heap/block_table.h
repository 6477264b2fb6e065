// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/heap/block.h"
#include "allocator/heap/range.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace spillway {

/// From an address to the live block around it: one entry for each `unit` of a region's addresses.
/// Requires: no two live blocks begin in the same unit.
class BlockTable {
 public:
  BlockTable(Range range, Bytes unit);

  void add(Block* block) {
    Leaf& leaf = leaf_at(index(block->at));
    leaf.entries[index(block->at) % kLeaf] = block;
    ++leaf.count;
  }

  void remove(const Block* block) {
    Leaf& leaf = leaf_at(index(block->at));
    leaf.entries[index(block->at) % kLeaf] = nullptr;
    --leaf.count;
  }

  /// The live block that begins at `at`, null where none does. Requires: `at` in the range.
  [[nodiscard]] Block* starting(driver::DevicePtr at) const {
    const Leaf* const leaf = leaves_[index(at) / kLeaf].get();
    Block* const block = leaf == nullptr ? nullptr : leaf->entries[index(at) % kLeaf];
    return block != nullptr && block->at == at ? block : nullptr;
  }

  /// The live block that `at` lies in, null where it lies in none. Requires: `at` in the range.
  /// Looks through the entries below, at most those of the block itself.
  [[nodiscard]] Block* around(driver::DevicePtr at) const;

 private:
  static constexpr std::size_t kLeaf = 4096;

  struct Leaf {
    std::array<Block*, kLeaf> entries{};
    std::size_t count = 0;
  };

  [[nodiscard]] std::size_t index(driver::DevicePtr at) const {
    return distance(begin_, at).count() >> shift_;
  }

  Leaf& leaf_at(std::size_t index) {
    std::unique_ptr<Leaf>& leaf = leaves_[index / kLeaf];
    if (leaf == nullptr) leaf = std::make_unique<Leaf>();
    return *leaf;
  }

  const driver::DevicePtr begin_;
  const unsigned shift_;
  std::vector<std::unique_ptr<Leaf>> leaves_;
};

}  // namespace spillway
