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

/// State of a piece of a heap region's addresses.
///   kGap: no owner and no memory; whole granules, for growth. Becomes kFree.
///   kFree: owned by the heap region. Becomes kLive when handed out, kGap or kHole when its chunk
///   is released. kLive: owned by a client. Becomes kFree when freed; a part of an evicted block
///   that has no memory becomes kGap or kHole. kHole: no owner and no memory, in a granule that an
///   evicted block touches too. Becomes kFree when that granule is mapped, kGap when the evicted
///   block is freed. kStuck: unusable until the process ends: the driver refused to undo a failed
///   mapping.
enum class BlockState : std::uint8_t { kGap, kFree, kLive, kHole, kStuck };

/// Work on a block other than that of its heap region's stream. A reuse of the block waits for it.
struct PendingUses : Pooled<PendingUses> {
  driver::FenceSet fences;
  // allocated blocks: timelines of streams other than its own
  std::vector<driver::Timeline*> users;
};

/// A piece of a heap region's addresses. The blocks of a heap region are adjacent and cover all its
/// addresses.
struct Block {
  driver::DevicePtr at;
  Bytes size;
  Block* before = nullptr;  // in address order
  Block* after = nullptr;
  Block* listed_before = nullptr;  // free blocks: within their bin; gaps: within the list of gaps
  Block* listed_after = nullptr;
  Bytes requested;             // allocated blocks
  std::uint64_t freed_at = 0;  // free blocks: Region::trim_some that came next, of any part's
  TagId tag = TagId::kUntagged;
  BlockState state = BlockState::kGap;
  bool evicted = false;               // allocated blocks
  bool pinned = false;                // allocated blocks: a free takes effect at Heap::unpin_blocks
  bool freed = false;                 // pinned blocks: the owner has freed it
  bool shared = false;                // allocated blocks: other processes may map its memory
  std::unique_ptr<PendingUses> ties;  // free and allocated blocks; null: none

  [[nodiscard]] Range range() const { return {at, size}; }

  [[nodiscard]] driver::DevicePtr end() const { return at + size; }

  [[nodiscard]] bool fenced() const { return ties != nullptr && !ties->fences.empty(); }

  /// FenceSet::last_point; 0 without fences.
  [[nodiscard]] std::uint64_t last_point() const {
    return ties == nullptr ? 0 : ties->fences.last_point();
  }
};

/// Block records, recycled instead of freed.
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
