// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/free_bins.h"

#include <algorithm>

namespace spillway {

Bytes FreeBins::largest() const {
  Bytes largest;
  if (summary_ == 0) return largest;
  const auto word = static_cast<std::size_t>(std::bit_width(summary_)) - 1;
  const auto bit = static_cast<std::size_t>(std::bit_width(words_[word])) - 1;
  for (const Block* block = heads_[word * 64 + bit]; block != nullptr; block = block->listed_after)
    largest = std::max(largest, block->size);
  return largest;
}

std::vector<Block*> FreeBins::all() const {
  std::vector<Block*> blocks;
  for (Block* const head : heads_) {
    for (Block* block = head; block != nullptr; block = block->listed_after)
      blocks.push_back(block);
  }
  return blocks;
}

}  // namespace spillway
