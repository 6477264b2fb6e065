// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/block_table.h"

#include <bit>

namespace spillway {

BlockTable::BlockTable(Range range, Bytes unit)
    : begin_(range.begin),
      shift_(static_cast<unsigned>(std::countr_zero(unit.count()))),
      leaves_((range.size.count() >> shift_) / kLeaf + 1) {}

Block* BlockTable::around(driver::DevicePtr at) const {
  std::size_t i = index(at) + 1;
  while (i-- > 0) {
    const Leaf* const leaf = leaves_[i / kLeaf].get();
    if (leaf == nullptr || leaf->count == 0) {
      i -= i % kLeaf;
      continue;
    }
    Block* const block = leaf->entries[i % kLeaf];
    // The first block below, unless it begins after `at` in the same unit.
    if (block != nullptr && block->at <= at) return at < block->end() ? block : nullptr;
  }
  return nullptr;
}

}  // namespace spillway
