// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/base/pooled.h"
#include "allocator/driver/fence_set.h"
#include "allocator/driver/handles.h"
#include "allocator/heap/range.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

namespace spillway {

/// Who a piece of a region's addresses belongs to.
///   kGap: nothing, and no memory is behind it: whole granules, for growth. Becomes kFree.
///   kFree: the region. Becomes kLive when it is handed out, kGap or kHole when its chunk goes.
///   kLive: a client. Becomes kFree when it is freed; a part of an evicted one that has no memory
///   becomes kGap or kHole. kHole: nothing, without memory, in a granule that an evicted block
///   touches too. Becomes kFree when that granule is mapped, kGap when the evicted block is freed.
///   kStuck: nothing, indefinitely: the driver refused to undo a mapping that had failed half way.
enum class BlockState : std::uint8_t { kGap, kFree, kLive, kHole, kStuck };

/// What a block is tied to besides its region's stream.
struct PendingUses : Pooled<PendingUses> {
  driver::FenceSet fences;
  std::vector<driver::Timeline*> users;  // live ones: of streams other than the region's
};

/// A piece of a region's addresses. Those of a region lie side by side and cover it.
struct Block {
  driver::DevicePtr at;
  Bytes size;
  Block* before = nullptr;  // in address order
  Block* after = nullptr;
  Block* listed_before = nullptr;  // free ones: in their bin; gaps: among the gaps
  Block* listed_after = nullptr;
  Bytes requested;  // live ones
  TagId tag = TagId::kUntagged;
  BlockState state = BlockState::kGap;
  bool evicted = false;               // live ones
  bool held = false;                  // live ones: a free takes effect at Heap::released
  bool freed = false;                 // held ones: by their owner
  bool shared = false;                // live ones: other processes may have its memory
  std::unique_ptr<PendingUses> ties;  // free and live ones; null: none

  [[nodiscard]] Range range() const { return {at, size}; }

  [[nodiscard]] driver::DevicePtr end() const { return at + size; }

  [[nodiscard]] bool fenced() const { return ties != nullptr && !ties->fences.empty(); }
};

/// Records of blocks, used again instead of freed.
class BlockStore {
 public:
  Block* make(driver::DevicePtr at, Bytes size, BlockState state) {
    if (spare_ == nullptr) spare_ = &records_.emplace_back();
    Block* const block = spare_;
    spare_ = block->listed_after;
    block->at = at;
    block->size = size;
    block->state = state;
    return block;
  }

  void drop(Block* block) {
    *block = Block{};
    block->listed_after = spare_;
    spare_ = block;
  }

 private:
  std::deque<Block> records_;
  Block* spare_ = nullptr;
};

}  // namespace spillway
