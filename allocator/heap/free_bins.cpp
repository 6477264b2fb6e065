// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/free_bins.h"

namespace spillway {

std::vector<Block*> FreeBins::all() const {
  std::vector<Block*> blocks;
  for (Block* const head : heads_) {
    for (Block* block = head; block != nullptr; block = block->listed_after)
      blocks.push_back(block);
  }
  return blocks;
}

}  // namespace spillway
