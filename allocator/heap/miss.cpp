// SPDX-License-Identifier: Apache-2.0
// Requests that no cached block serves: growth, and what happens when memory is short.
#include "allocator/driver/span_log.h"
#include "allocator/heap/heap.h"
#include "allocator/heap/heap_state.h"
#include "allocator/heap/region_hits.h"

namespace spillway {
namespace {

/// Whether much of the target is cached: what passes need again is less.
bool caches_much(const Accounting& accounting) {
  constexpr std::uint64_t kMuch = 3;
  HeapStats stats;
  accounting.read(stats);
  return saturating_sub(stats.reserved, stats.allocated).count() >
         accounting.target().count() / kMuch;
}

/// Free memory of this stream that can move without a wait.
Bytes movable(const HeapState& heap, CUstream stream) SPILLWAY_REQUIRES(heap.mutex) {
  Bytes bytes;
  for (Region* const region : heap.trimmable_regions()) {
    if (region->key().stream != stream) continue;
    const RegionLock lock(*region);
    bytes += region->movable();
  }
  return bytes;
}

}  // namespace

Result<driver::DevicePtr> HeapState::miss(const RegionKey& key,
                                          Bytes size,
                                          Bytes requested,
                                          TagId tag) {
  const Lock lock(mutex);
  const driver::CurrentDevice current(*device.api, device.context);
  const driver::SpanLog::Scope timed(
      device, driver::Stream(key.stream, device.id), driver::Span::Kind::kMapping, size);
  const SpareChunks::Scope scope(spares);
  const Bytes growth = size.rounded_up(addresses.granularity());
  const bool passes_soft_limit = accounting.passes_soft_limit(size);
  if (passes_soft_limit || accounting.passes_target(growth)) {
    // Cached memory may suffice: only growth must be preceded by a trim.
    Result<driver::DevicePtr> block = take_cached(key, size, requested, tag);
    if (block.ok()) return block;
    if (streams && key.tier == Tier::kPersistent) {
      block = take_streamed(key, size, requested, tag);
      if (block.ok() || (in_pass && accounting.passes_budget(growth))) return block;
    }
    if (passes_soft_limit) {
      trim_for_room();
    } else {
      trim_to_target(key.stream, growth);
    }
  }
  Result<driver::DevicePtr> block = allocate(key, size, requested, tag, Source::kNew);
  // When memory is short, sizes and lifetimes share chunks.
  if (!block.ok() && key.tier != Tier::kSmall) {
    Result<driver::DevicePtr> shared = share(key, size, requested, tag, Source::kNew);
    if (shared.ok()) return shared;
  }
  if (!block.ok() && block.status().code() == Code::kOutOfDeviceMemory) {
    trim_after_failure(growth);
    block = allocate(key, size, requested, tag, Source::kNew);
  }
  return block;
}

void HeapState::trim_after_failure(Bytes growth) {
  // The caller makes room within a budget: replay plans are not dropped for it.
  if (accounting.passes_budget(growth)) {
    trim_cached();
  } else {
    trim_for_room();
  }
}

Result<driver::DevicePtr> HeapState::take_cached(const RegionKey& key,
                                                 Bytes size,
                                                 Bytes requested,
                                                 TagId tag) {
  const bool streamed = streams && key.tier == Tier::kPersistent;
  if (accounting.has_target() && !accounting.passes_soft_limit(size) && !streamed) {
    Result<driver::DevicePtr> block = allocate(key, size, requested, tag, Source::kSettled);
    if (block.ok()) return block;
    const Bytes growth = size.rounded_up(addresses.granularity());
    if (movable(*this, key.stream) + accounting.room_to_target() >= growth) {
      if (trim_some_to_target(key.stream, growth).zero())
        block = allocate(key, size, requested, tag, Source::kNew);
      if (block.ok()) return block;
    }
  }
  return allocate(key, size, requested, tag, Source::kCached);
}

/// A streamed block for which the target has no room.
Result<driver::DevicePtr> HeapState::take_streamed(const RegionKey& key,
                                                   Bytes size,
                                                   Bytes requested,
                                                   TagId tag) {
  if (in_pass) {
    // Its other requests soon need their cached memory again.
    trim_some_to_target(key.stream, size.rounded_up(addresses.granularity()), Tier::kPersistent);
    Result<driver::DevicePtr> block = allocate(key, size, requested, tag, Source::kNew);
    if (block.ok() || !caches_much(accounting)) return block;
  }
  return share(key, size, requested, tag, Source::kCached);
}

/// From memory of other tiers of the same stream and pool, except that of streamed blocks.
Result<driver::DevicePtr> HeapState::share(
    const RegionKey& key, Bytes size, Bytes requested, TagId tag, Source most) {
  Result<driver::DevicePtr> block =
      SPILLWAY_ERROR(Code::kOutOfDeviceMemory, "no other cached block is large enough");
  for (const Tier other : {Tier::kLarge, Tier::kPersistent, Tier::kSmall}) {
    const RegionKey elsewhere{key.stream, key.pool, other};
    if (other == key.tier || regions.of(elsewhere) == nullptr) continue;
    if (other == Tier::kPersistent && streams) continue;
    block =
        allocate(elsewhere, size, requested, tag, other == Tier::kSmall ? Source::kCached : most);
    if (block.ok()) break;
  }
  return block;
}

Result<driver::DevicePtr> HeapState::allocate(
    const RegionKey& key, Bytes size, Bytes requested, TagId tag, Source most) {
  SPILLWAY_ASSIGN_OR_RETURN(Region* const region, region_for(key));
  const LightLock lock(region->mutex);
  if (accounting.has_target()) {
    if (auto block = take_unfenced(*region, size, requested, tag, most == Source::kNew)) {
      if (!block->ok()) return block->status();
      region->account().hand_out(tag, size, requested);
      return block->value()->at;
    }
  }
  Block* block = nullptr;
  if (most != Source::kSettled) {
    block = region->any_fitting(size);
    if (block == nullptr) block = region->any_joined(size);
  }
  if (block == nullptr) {
    if (most != Source::kNew)
      return SPILLWAY_ERROR(Code::kOutOfDeviceMemory, "no cached block is large enough");
    SPILLWAY_ASSIGN_OR_RETURN(block, region->grow(size));
  }
  Result<Block*> taken = region->take(block, size, requested, tag);
  if (!taken.ok() && taken.status().code() == Code::kNotReady) {
    // A capture forbids waiting for free memory: use new memory instead.
    taken = region->fresh(size, requested, tag);
  }
  if (!taken.ok()) return taken.status();
  region->account().hand_out(tag, size, requested);
  return taken.value()->at;
}

}  // namespace spillway
