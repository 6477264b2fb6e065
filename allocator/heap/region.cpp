// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/region.h"

#include <iterator>
#include <vector>

namespace spillway {
namespace {

/// Blocks of one size that are asked whether their fences have passed, for one allocation.
constexpr int kMostAsked = 16;

}  // namespace

Bytes Region::largest_free() const {
  return free_.empty() ? Bytes{} : free_.rbegin()->first;
}

Region::Blocks::iterator Region::around(driver::DevicePtr at) {
  const auto next = blocks_.upper_bound(at);
  if (next == blocks_.begin()) return blocks_.end();
  const auto block = std::prev(next);
  return at < block->first + block->second.size ? block : blocks_.end();
}

std::optional<driver::DevicePtr> Region::best_fit(Bytes size) {
  const auto first = free_.lower_bound({size, driver::DevicePtr{}});
  if (first == free_.end()) return std::nullopt;
  int asked = 0;
  for (auto at = first; at != free_.end() && at->first == first->first && asked < kMostAsked;
       ++at, ++asked) {
    if (seen_to_pass(blocks_.find(at->second))) return at->second;
  }
  return first->second;
}

Result<Region::Memory> Region::grow(Bytes size, Bytes room) {
  const auto growth = cheapest_growth(size);
  if (!growth) {
    return SPILLWAY_ERROR(Code::kOutOfDeviceMemory, "the addresses of this stream are used up");
  }
  if (growth->where.size > room) {
    return SPILLWAY_ERROR(Code::kOutOfDeviceMemory, "the limit is reached");
  }
  for (const auto neighbour : {growth->left, growth->right}) {
    if (neighbour == blocks_.end() || seen_to_pass(neighbour)) continue;
    SPILLWAY_RETURN_IF_ERROR(settle(neighbour));
  }
  SPILLWAY_ASSIGN_OR_RETURN(const std::uint64_t chunks, backing_.map(growth->where));

  // Nothing below may fail.
  Block block;
  block.size = growth->where.size;
  merge(blocks_.emplace(growth->where.begin, std::move(block)).first);
  return Memory{growth->where.size, chunks};
}

std::optional<Region::Growth> Region::cheapest_growth(Bytes size) {
  std::optional<Growth> best;
  const auto consider = [&](const Growth& growth) {
    if (!best || growth.where.size < best->where.size) best = growth;
  };
  const auto free_or_end = [&](Blocks::iterator block) {
    return block != blocks_.end() && block->second.state == BlockState::kFree ? block
                                                                              : blocks_.end();
  };
  for (const auto& [begin, length] : backing_.gaps()) {
    const Range gap{begin, length};
    auto left = blocks_.lower_bound(begin);
    left = left == blocks_.begin() ? blocks_.end() : free_or_end(std::prev(left));
    if (left != blocks_.end() && left->first + left->second.size != begin) left = blocks_.end();
    const auto right = free_or_end(blocks_.find(gap.end()));
    // Neither neighbour is large enough alone: then no growth would have been asked for.
    const Bytes left_size = left == blocks_.end() ? Bytes{} : left->second.size;
    const Bytes right_size = right == blocks_.end() ? Bytes{} : right->second.size;
    const Bytes after_left = (size - left_size).rounded_up(backing_.granularity());
    const Bytes before_right = (size - right_size).rounded_up(backing_.granularity());
    if (after_left < length) consider({{begin, after_left}, left, blocks_.end()});
    if (before_right < length) {
      consider({{begin + (length - before_right), before_right}, blocks_.end(), right});
    }
    if (left_size + length + right_size >= size) consider({gap, left, right});
  }
  return best;
}

Result<Block*> Region::take(driver::DevicePtr at, Bytes size) {
  const auto block = blocks_.find(at);
  SPILLWAY_RETURN_IF_ERROR(settle(block));

  // Nothing below may fail.
  unlist(block);
  if (block->second.size > size) {
    Block rest;
    rest.size = block->second.size - size;
    block->second.size = size;
    list(blocks_.emplace_hint(std::next(block), at + size, std::move(rest)));
  }
  block->second.state = BlockState::kLive;
  return &block->second;
}

void Region::give(Blocks::iterator block) {
  block->second.state = BlockState::kFree;
  block->second.requested = Bytes{};
  block->second.tag = TagId::kUntagged;
  block->second.users.clear();
  merge(block);
}

void Region::merge(Blocks::iterator block) {
  const auto absorb = [&](Blocks::iterator left, Blocks::iterator right) {
    left->second.size += right->second.size;
    left->second.fences.add(right->second.fences);
    blocks_.erase(right);
  };
  const auto touching = [](Blocks::iterator left, Blocks::iterator right) {
    return left->first + left->second.size == right->first;
  };
  const auto next = std::next(block);
  if (next != blocks_.end() && next->second.state == BlockState::kFree && touching(block, next)) {
    unlist(next);
    absorb(block, next);
  }
  if (block != blocks_.begin()) {
    const auto previous = std::prev(block);
    if (previous->second.state == BlockState::kFree && touching(previous, block)) {
      unlist(previous);
      absorb(previous, block);
      block = previous;
    }
  }
  list(block);
}

Region::Memory Region::trim(driver::Timeline& own) {
  std::vector<driver::DevicePtr> empty;
  for (const auto& [at, chunk] : backing_.chunks()) {
    const auto block = around(at);
    if (!wholly_free(block, {at, chunk.size})) continue;
    if (!block->second.fences.empty()) {
      if (!block->second.fences.wait_sync().ok()) continue;
      block->second.fences.clear();
      pending_ -= block->second.size;
    }
    empty.push_back(at);
  }
  if (empty.empty()) return {};
  const Result<driver::Fence> all = own.mark();
  if (!all.ok() || !driver::Timeline::wait_sync(all.value()).ok()) return {};

  Memory trimmed;
  for (const driver::DevicePtr at : empty) {
    const Bytes size = backing_.chunks().at(at).size;
    if (!backing_.unmap(at)) continue;
    cut({at, size});
    trimmed.bytes += size;
    ++trimmed.chunks;
  }
  return trimmed;
}

bool Region::wholly_free(Blocks::iterator block, Range where) const {
  return block != blocks_.end() && block->second.state == BlockState::kFree &&
         Range{block->first, block->second.size}.contains(where);
}

/// Takes `where` out of the free block around it, whose fences have been waited for.
void Region::cut(Range where) {
  const auto block = around(where.begin);
  SPILLWAY_CHECK(wholly_free(block, where));
  const Range old{block->first, block->second.size};
  unlist(block);
  if (where.end() < old.end()) {
    Block rest;
    rest.size = distance(where.end(), old.end());
    list(blocks_.emplace(where.end(), std::move(rest)).first);
  }
  if (old.begin < where.begin) {
    block->second.size = distance(old.begin, where.begin);
    list(block);
  } else {
    blocks_.erase(block);
  }
}

/// Forgets the fences of a free block that have passed; true where none is left.
bool Region::seen_to_pass(Blocks::iterator block) {
  if (block->second.fences.empty()) return true;
  const driver::CurrentDevice current(*device_.api, device_.context);
  if (!block->second.fences.drop_passed()) return false;
  pending_ -= block->second.size;
  return true;
}

/// Orders the region's stream after the fences of a free block, which then needs them no more.
Status Region::settle(Blocks::iterator block) {
  if (block->second.fences.empty()) return {};
  const driver::CurrentDevice current(*device_.api, device_.context);
  SPILLWAY_ASSIGN_OR_RETURN(const std::uint64_t waits, block->second.fences.wait(stream_));
  fence_waits_ += waits;
  block->second.fences.clear();
  pending_ -= block->second.size;
  return {};
}

void Region::list(Blocks::iterator block) {
  free_.emplace(block->second.size, block->first);
  if (!block->second.fences.empty()) pending_ += block->second.size;
}

void Region::unlist(Blocks::iterator block) {
  free_.erase({block->second.size, block->first});
  if (!block->second.fences.empty()) pending_ -= block->second.size;
}

}  // namespace spillway
