// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/heap.h"

#include "allocator/heap/heap_state.h"
#include "allocator/heap/region_hits.h"
#include "allocator/heap/step_replay.h"

#include <algorithm>

namespace spillway {
namespace {

using namespace literals;

constexpr Bytes kUnit = 512_B;
/// Small enough that weights and their gradients are large: two pools that peak at different times
/// reserve more than one.
constexpr Bytes kLargestSmall = 128_KiB;

}  // namespace

HeapState::HeapState(const driver::Device& on, const HeapOptions& with)
    : device(on),
      options(with),
      accounting(with),
      timelines(on),
      addresses(on),
      spares(on, accounting),
      access{driver::access_of(on.id)},
      replay(with.replay) {}

Result<std::unique_ptr<Heap>> Heap::create(const driver::Device& device,
                                           const HeapOptions& options) {
  auto state = std::make_unique<HeapState>(device, options);
  SPILLWAY_RETURN_IF_ERROR(state->addresses.open());
  return std::unique_ptr<Heap>(new Heap(std::move(state)));
}

Heap::Heap(std::unique_ptr<HeapState> state) : state_(std::move(state)) {}

Heap::~Heap() {
  SPILLWAY_CHECK(stats().allocated_blocks == 0);
}

inline Tier HeapState::tier_of(BlockUse use) const {
  return use == BlockUse::kStreamed && streams.load(std::memory_order_relaxed)
             ? Tier::kPersistent
             : large_tier.load(std::memory_order_relaxed);
}

inline driver::DevicePtr HeapState::hit(const RegionKey& key,
                                        Bytes size,
                                        Bytes requested,
                                        TagId tag) const {
  Region* const region = regions.of(key);
  if (region == nullptr) return {};
  const LightLock lock(region->mutex);
  Block* const block = region->fitting(size);
  if (block == nullptr || !region->seen_to_pass(block)) return {};
  region->account().hand_out(tag, size, requested);
  return region->take_settled(block, size, requested, tag)->at;
}

/// Inlined into both callers, so that a hit makes no extra call.
[[gnu::always_inline]] inline Result<driver::DevicePtr> HeapState::serve(Heap& heap,
                                                                         const Request& request) {
  const auto& [size, stream, tag, pool, use] = request;
  // Checked before rounding, which overflows for sizes near 2^64.
  if (size > addresses.range_size()) {
    return heap.out_of_memory(
        size,
        SPILLWAY_ERROR(Code::kOutOfDeviceMemory, "that is more than twice the device's memory"));
  }
  const Bytes rounded{(size.count() + kUnit.count() - 1) & ~(kUnit.count() - 1)};
  const RegionKey key{
      stream.handle(), pool, rounded <= kLargestSmall ? Tier::kSmall : tier_of(use)};
  // NOLINTNEXTLINE(readability-suspicious-call-argument): as rounded, then as asked for
  const driver::DevicePtr at = hit(key, rounded, size, tag);
  if (at != driver::DevicePtr{}) return at;
  // NOLINTNEXTLINE(readability-suspicious-call-argument): as rounded, then as asked for
  Result<driver::DevicePtr> block = miss(key, rounded, size, tag);
  if (block.ok()) return block;
  // The caller can make room within a budget: memory has not run out yet.
  if (accounting.passes_budget(rounded.rounded_up(addresses.granularity()))) return block.status();
  return heap.out_of_memory(size, block.status());
}

Result<driver::DevicePtr> Heap::allocate(
    Bytes size, driver::Stream stream, TagId tag, PoolId pool, BlockUse use) {
  if (size.zero()) return driver::DevicePtr{};
  const bool apart =
      use == BlockUse::kStreamed && (state_->streams.load(std::memory_order_relaxed) ||
                                     state_->without_streamed.load(std::memory_order_relaxed));
  if (apart) state_->replay.write_accounting();
  if (!apart && state_->replay.on.load(std::memory_order_relaxed)) {
    ReplayRegion* const replay = state_->replay.region.load(std::memory_order_acquire);
    const driver::DevicePtr at =
        replay == nullptr ? driver::DevicePtr{} : replay->take_next(stream, pool, size, tag);
    if (at != driver::DevicePtr{}) return at;
    return allocate_in_step(size, stream, tag, pool);
  }
  return state_->serve(*this, {size, stream, tag, pool, use});
}

Result<driver::DevicePtr> Heap::allocate_anywhere(Bytes size,
                                                  driver::Stream stream,
                                                  TagId tag,
                                                  PoolId pool) {
  return state_->serve(*this, {size, stream, tag, pool});
}

Status Heap::out_of_memory(Bytes size, const Status& failed) {
  if (failed.code() != Code::kOutOfDeviceMemory) return failed;
  state_->accounting.count_out_of_memory();
  return SPILLWAY_ERROR(
      Code::kOutOfDeviceMemory,
      "cannot allocate " + readable(size) + ": " + failed.detail() + "; " + view().describe());
}

bool Heap::free(driver::DevicePtr at) {
  if (at == driver::DevicePtr{}) return true;
  if (state_->replay.on.load(std::memory_order_relaxed)) {
    ReplayRegion* const replay = state_->replay.region.load(std::memory_order_acquire);
    if (replay != nullptr && replay->release_next(at)) return true;
    if (StepReplay(*state_).release(at)) return true;
  }
  return free_anywhere(at);
}

bool Heap::free_anywhere(driver::DevicePtr at) {
  Region* const region = state_->regions.around(at);
  if (region == nullptr) return state_->refuse_free();
  {
    const LightLock lock(region->mutex);
    Block* const block = region->allocated().starting(at);
    if (block == nullptr || block->freed) return state_->refuse_free();
    if (block->pinned) {
      block->freed = true;
      return true;
    }
    region->account().take_back(block->tag, block->size, block->requested);
    region->give(block);
    if (!region->released) return true;
  }
  const Lock lock(state_->mutex);
  state_->trim(*region);
  return true;
}

void Heap::release_pool(PoolId pool) {
  if (pool == PoolId::kShared) return;
  const Lock lock(state_->mutex);
  for (const auto& region : state_->regions.all()) {
    if (region->key().pool != pool) continue;
    {
      const RegionLock region_lock(*region);
      region->released = true;
    }
    state_->trim(*region);
  }
}

bool Heap::add_fence(driver::DevicePtr at, driver::Fence fence) {
  return state_->with_block(at, [&](Block& block, const Region& region) {
    // Work submitted to the heap region's stream is ordered before its next block anyway.
    if (!fence.set() || fence.timeline->stream() == region.stream()) return;
    if (block.ties == nullptr) block.ties = std::make_unique<PendingUses>();
    block.ties->fences.add(fence);
  });
}

bool Heap::record_use(driver::DevicePtr at, driver::Stream stream) {
  return state_->with_block(at, [&](Block& block, const Region& region) {
    if (stream == region.stream()) return;
    if (block.ties == nullptr) block.ties = std::make_unique<PendingUses>();
    auto& users = block.ties->users;
    driver::Timeline* const user = &state_->timelines.of(stream);
    if (std::find(users.begin(), users.end(), user) == users.end()) users.push_back(user);
  });
}

Status Heap::check_stream(driver::Stream stream) {
  return state_->timelines.of(stream).verify();
}

bool Heap::retag(driver::DevicePtr at, TagId tag) {
  state_->replay.write_accounting();
  return state_->with_block(at, [&](Block& block, const Region& region) {
    region.account().retag(block.tag, tag, block.size);
    block.tag = tag;
  });
}

bool Heap::owns(driver::DevicePtr at) const {
  return state_->regions.around(at) != nullptr;
}

Bytes Heap::trim_sync() {
  const Lock lock(state_->mutex);
  return state_->trim();
}

std::vector<Region*> HeapState::trimmable_regions() const {
  std::vector<Region*> found;
  for (const auto& region : regions.all()) {
    if (region->key().tier == Tier::kReplay) continue;
    const RegionLock lock(*region);
    // Replays of the graphs captured in a pool in use still write to its free memory.
    if (!written_while_free(region->key().pool) || region->released) found.push_back(region.get());
  }
  return found;
}

std::vector<ReplayRegion*> HeapState::replay_regions() const {
  std::vector<ReplayRegion*> found;
  for (const auto& region : regions.all()) {
    if (region->key().tier == Tier::kReplay)
      found.push_back(static_cast<ReplayRegion*>(region.get()));
  }
  return found;
}

Bytes HeapState::trim_cached() {
  Bytes bytes = spares.trim();
  for (Region* const region : trimmable_regions())
    bytes += trim(*region);
  return bytes;
}

Bytes HeapState::trimmable() const {
  Bytes bytes = spares.bytes();
  for (Region* const region : trimmable_regions()) {
    const RegionLock lock(*region);
    bytes += region->trimmable();
  }
  return bytes;
}

Bytes HeapState::trim() {
  Bytes bytes = trim_cached();
  for (ReplayRegion* const region : replay_regions())
    bytes += trim(*region);
  return bytes;
}

Bytes HeapState::trim_for_room() {
  if (replay.on.load(std::memory_order_relaxed)) replay.ran_out(accounting.has_target());
  return trim();
}

Bytes HeapState::trim(Region& region) {
  const RegionLock lock(region);
  return region.trim();
}

void HeapLimits::set_limit(Bytes limit) {
  state_->accounting.set_limit(limit);
}

void HeapLimits::set_soft_limit(Bytes limit) {
  state_->accounting.set_soft_limit(limit);
}

Bytes HeapLimits::limit() const {
  return state_->accounting.limit();
}

Bytes HeapView::granularity() const {
  return state_->addresses.granularity();
}

Status Heap::enable_peer(DeviceId peer) {
  const Lock lock(state_->mutex);
  const auto known = [peer](const CUmemAccessDesc& access) {
    return access.location.id == static_cast<int>(peer);
  };
  if (std::any_of(state_->access.begin(), state_->access.end(), known)) return {};
  const Access added{driver::access_of(peer)};
  for (const auto& region : state_->regions.all()) {
    const RegionView region_lock(*region);
    SPILLWAY_RETURN_IF_ERROR(region->backing().allow(added));
  }
  SPILLWAY_RETURN_IF_ERROR(state_->spares.formers().allow(added));
  state_->access.push_back(added.front());
  return {};
}

Result<Region*> HeapState::region_for(const RegionKey& key) {
  if (Region* const known = regions.of(key)) return known;
  SPILLWAY_RETURN_IF_ERROR(timelines.of(driver::Stream(key.stream, device.id)).verify());
  SPILLWAY_ASSIGN_OR_RETURN(const Range range, addresses.take());
  const RegionParts parts{device, addresses, access, accounting, timelines, spares};
  std::unique_ptr<Region> made;
  if (key.tier == Tier::kReplay) {
    made = std::make_unique<ReplayRegion>(parts, key, range);
  } else {
    made = std::make_unique<Region>(parts, key, range);
  }
  Region* const region = made.get();
  if (!regions.add(std::move(made), addresses.piece())) {
    return SPILLWAY_ERROR(
        Code::kOutOfDeviceMemory,
        "the heap has no room for another pair of stream and memory pool. Use fewer of them.");
  }
  return region;
}

void HeapView::reset_peaks() {
  state_->replay.write_accounting();
  state_->accounting.reset_peaks();
}

Result<SharedMemory> Heap::share(driver::DevicePtr at) {
  const Lock lock(state_->mutex);
  Region* const region = state_->regions.around(at);
  if (region == nullptr) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "the address is not in memory of Spillway's heap");
  }
  const RegionLock region_lock(*region);
  Block* const block = region->allocated().around(at);
  if (block == nullptr) {
    return SPILLWAY_ERROR(Code::kInvalidArgument,
                          "the address is not in an allocated block: its block was freed");
  }
  if (region->key().tier == Tier::kSmall) {
    return SPILLWAY_ERROR(
        Code::kInvalidArgument,
        "blocks of at most 128 KiB cannot be shared with other processes: their pages hold other "
        "blocks too");
  }
  if (block->evicted || block->pinned) {
    return SPILLWAY_ERROR(Code::kNotReady, "the memory is paused. Resume it first.");
  }
  return region->share(block);
}

}  // namespace spillway
