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

/// Maps an address to the allocated block that contains it: one entry per `unit` of a heap region's
/// addresses.
/// Requires: no two allocated blocks begin in the same unit.
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

  /// The allocated block that begins at `at`; null if there is none.
  /// Requires: `at` is in the range.
  [[nodiscard]] Block* starting(driver::DevicePtr at) const {
    const Leaf* const leaf = leaves_[index(at) / kLeaf].get();
    Block* const block = leaf == nullptr ? nullptr : leaf->entries[index(at) % kLeaf];
    return block != nullptr && block->at == at ? block : nullptr;
  }

  /// The allocated block that contains `at`; null if there is none.
  /// Requires: `at` is in the range. Searches the entries below `at`, at most as many as the block
  /// spans.
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
