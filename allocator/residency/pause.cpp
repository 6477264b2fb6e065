// SPDX-License-Identifier: Apache-2.0
#include "allocator/residency/pause.h"

#include "allocator/tag/tag.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

std::vector<driver::DevicePtr> addresses(const PauseManager::Blocks& blocks) {
  std::vector<driver::DevicePtr> all;
  all.reserve(blocks.size());
  for (const PauseManager::Block& block : blocks)
    all.push_back(block.at);
  return all;
}

void sort_by_address(PauseManager::Blocks& blocks) {
  std::sort(blocks.begin(),
            blocks.end(),
            [](const PauseManager::Block& left, const PauseManager::Block& right) {
              return left.at < right.at;
            });
}

}  // namespace

Result<PauseManager::Blocks> PauseManager::begin_pause(std::span<const TagId> tags,
                                                       Contents contents) {
  Blocks blocks;
  // While the blocks are pinned, no address gets another owner and no memory is released.
  for (const HeapBlockInfo& block : heap_.pin_blocks(tags, false))
    blocks.push_back({block.at, block.tag, block.requested, {}, {}, block.shared});
  sort_by_address(blocks);
  Status status = leave(blocks, contents);
  if (status.ok()) return blocks;
  cancel_pause(std::move(blocks));
  return status;
}

Status PauseManager::leave(Blocks& blocks, Contents contents) {
  for (const Block& block : blocks) {
    if (!block.shared) continue;
    return SPILLWAY_ERROR(Code::kNotReady,
                          "memory under \"" + tag_name(block.tag) +
                              "\" is shared with other processes, which still use it. Free the "
                              "tensors that were sent to them, then pause it.");
  }
  if (contents == Contents::kKept) {
    for (Block& block : blocks) {
      SPILLWAY_ASSIGN_OR_RETURN(block.copy, arena_.take(block.size));
    }
  }
  SPILLWAY_ASSIGN_OR_RETURN(const driver::FenceSet uses, heap_.last_uses(addresses(blocks)));
  if (contents == Contents::kKept) {
    SPILLWAY_RETURN_IF_ERROR(uses.wait(copies_.out_stream()).status());
    SPILLWAY_ASSIGN_OR_RETURN(const driver::Fence last, copy_out(blocks));
    SPILLWAY_RETURN_IF_ERROR(driver::Timeline::wait_sync(last));
  }
  // Memory must not be released while the device uses it. If copies were ordered after the uses,
  // these have passed.
  return uses.wait_sync();
}

/// One batch, after the present waits of its queue. Returns its fence.
Result<driver::Fence> PauseManager::copy_out(Blocks& blocks) {
  std::vector<CopyOut> copies;
  for (Block& block : blocks)
    copies.emplace_back(block.at, *block.copy);
  if (copies.empty()) return driver::Fence{};
  SPILLWAY_ASSIGN_OR_RETURN(const driver::Fence copied,
                            copies_.to_host(copies, copies_.out_stream()));
  for (Block& block : blocks)
    block.copied = copied;
  return copied;
}

Bytes PauseManager::finish_pause(Blocks blocks) {
  const std::vector<driver::DevicePtr> all = addresses(blocks);
  const Result<Bytes> released = heap_.evict(all);
  SPILLWAY_CHECK(released.ok());  // it fails only for blocks that are not allocated
  {
    const Lock lock(mutex_);
    for (const Block& block : blocks) {
      if (block.copy) stats_.copied_out += block.size;
    }
  }
  keep(std::move(blocks));
  unpin(all);
  return released.value();
}

void PauseManager::cancel_pause(Blocks blocks) {
  const std::vector<driver::DevicePtr> all = addresses(blocks);
  for (const Block& block : blocks) {
    // Its copy may still read it.
    if (block.copied.set()) heap_.add_fence(block.at, block.copied);
  }
  blocks.clear();
  unpin(all);
}

Result<PauseManager::Blocks> PauseManager::begin_resume(std::span<const TagId> tags) {
  Blocks blocks = take(tags, heap_.pin_blocks(tags, true));
  Status status = are_fetched(blocks);
  if (status.ok()) return blocks;
  cancel_resume(std::move(blocks));
  return status;
}

/// Removes the blocks under `tags` from the accounting. `pinned` are the paused ones among them.
PauseManager::Blocks PauseManager::take(std::span<const TagId> tags,
                                        std::span<const HeapBlockInfo> pinned) {
  Blocks blocks;
  Blocks gone;  // their copies end without the lock
  std::vector<driver::DevicePtr> leaving;
  {
    const Lock lock(mutex_);
    for (const HeapBlockInfo& block : pinned) {
      const auto known = paused_.find(block.at);
      if (known == paused_.end()) {
        leaving.push_back(block.at);  // its owner is about to free it
        continue;
      }
      uncount(known->second);
      blocks.push_back(std::move(known->second));
      paused_.erase(known);
    }
    // The rest was freed by owners concurrently with a pause on another thread.
    for (auto at = paused_.begin(); at != paused_.end();) {
      const bool asked = std::find(tags.begin(), tags.end(), at->second.tag) != tags.end();
      const bool stale = asked && !heap_.find(at->first).evicted;
      if (stale) {
        uncount(at->second);
        gone.push_back(std::move(at->second));
      }
      at = stale ? paused_.erase(at) : std::next(at);
    }
    any_.store(!paused_.empty(), std::memory_order_relaxed);
  }
  unpin(leaving);
  sort_by_address(blocks);
  return blocks;
}

Status PauseManager::are_fetched(Blocks& blocks) {
  SPILLWAY_RETURN_IF_ERROR(heap_.restore(addresses(blocks)));
  Status status = copy_in_sync(blocks);
  // The memory is released again, so nothing may write to it any more.
  if (!status.ok()) copies_.drain_sync();
  return status;
}

Status PauseManager::copy_in_sync(Blocks& blocks) {
  std::vector<CopyIn> copies;
  for (Block& block : blocks) {
    if (block.copy) copies.push_back({block.copy->bytes(), block.copied, block.at});
  }
  if (copies.empty()) return {};
  // The memory has not been used since, so the copies need no order except after the copies out.
  SPILLWAY_ASSIGN_OR_RETURN(const driver::Fence copied,
                            copies_.to_device(copies, copies_.in_stream()));
  for (Block& block : blocks) {
    block.copied = copied;
    if (block.copy) block.copy->fences.add(copied);
  }
  return driver::Timeline::wait_sync(copied);
}

void PauseManager::finish_resume(Blocks blocks) {
  const std::vector<driver::DevicePtr> all = addresses(blocks);
  {
    const Lock lock(mutex_);
    for (const Block& block : blocks) {
      if (block.copy) stats_.copied_in += block.size;
    }
  }
  blocks.clear();
  unpin(all);
}

void PauseManager::cancel_resume(Blocks blocks) {
  const std::vector<driver::DevicePtr> all = addresses(blocks);
  SPILLWAY_CHECK(heap_.evict(all).ok());  // it fails only for blocks that are not allocated
  keep(std::move(blocks));
  unpin(all);
}

void PauseManager::keep(Blocks blocks) {
  Blocks stale;  // their copies end without the lock
  const Lock lock(mutex_);
  for (Block& block : blocks) {
    count(block);
    const auto [known, added] = paused_.try_emplace(block.at, std::move(block));
    if (added) continue;
    // A former owner of the address freed it concurrently with an earlier pause.
    uncount(known->second);
    stale.push_back(std::exchange(known->second, std::move(block)));
  }
  any_.store(!paused_.empty(), std::memory_order_relaxed);
}

void PauseManager::unpin(std::span<const driver::DevicePtr> blocks) {
  for (const driver::DevicePtr at : heap_.unpin_blocks(blocks))
    forget(at);
}

void PauseManager::forget(driver::DevicePtr at) {
  Block gone;  // its copy ends without the lock
  const Lock lock(mutex_);
  const auto known = paused_.find(at);
  if (known == paused_.end()) return;
  uncount(known->second);
  gone = std::move(known->second);
  paused_.erase(known);
  any_.store(!paused_.empty(), std::memory_order_relaxed);
}

void PauseManager::count(const Block& block) {
  ++stats_.blocks;
  stats_.paused += block.size;
  if (!block.copy) return;
  stats_.on_host += block.size;
  offloaded_ += block.size.count();
}

void PauseManager::uncount(const Block& block) {
  --stats_.blocks;
  stats_.paused -= block.size;
  if (!block.copy) return;
  stats_.on_host -= block.size;
  offloaded_ -= block.size.count();
}

std::set<TagId> PauseManager::tags() {
  const Lock lock(mutex_);
  std::set<TagId> tags;
  for (auto& [at, block] : paused_) {
    const HeapBlockInfo now = heap_.find(at);
    if (now.evicted) block.tag = now.tag;  // it may have been retagged since
    tags.insert(block.tag);
  }
  return tags;
}

Bytes PauseManager::bytes_under(std::span<const TagId> tags) const {
  const Lock lock(mutex_);
  Bytes bytes;
  for (const auto& [at, block] : paused_) {
    if (std::find(tags.begin(), tags.end(), block.tag) != tags.end()) bytes += block.size;
  }
  return bytes;
}

PauseStats PauseManager::stats() const {
  const Lock lock(mutex_);
  return stats_;
}

}  // namespace spillway
