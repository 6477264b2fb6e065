// SPDX-License-Identifier: Apache-2.0
#include "allocator/heap/heap.h"

#include "allocator/heap/heap_state.h"

#include <algorithm>
#include <limits>

namespace spillway {
namespace {

using namespace literals;

constexpr Bytes kUnit = 512_B;
/// Small enough that weights and their gradients are large: two pools that peak at different times
/// hold more than one.
constexpr Bytes kLargestSmall = 128_KiB;

}  // namespace

Result<std::unique_ptr<Heap>> Heap::create(const driver::Device& device,
                                           const HeapOptions& options) {
  auto state = std::make_unique<State>(device, options);
  {
    const Lock lock(state->mutex);
    SPILLWAY_RETURN_IF_ERROR(state->addresses.open());
  }
  return std::unique_ptr<Heap>(new Heap(std::move(state)));
}

Heap::Heap(std::unique_ptr<State> state) : state_(std::move(state)) {}

Heap::~Heap() {
  const Lock lock(state_->mutex);
  SPILLWAY_CHECK(state_->stats.live_blocks == 0);
  state_->regions.clear();
}

Result<driver::DevicePtr> Heap::allocate(Bytes size, driver::Stream stream, TagId tag) {
  if (size.zero()) return driver::DevicePtr{};
  Status failed;
  {
    const Lock lock(state_->mutex);
    Result<driver::DevicePtr> block = state_->allocate(size, stream, tag);
    if (!block.ok() && block.status().code() == Code::kOutOfDeviceMemory) {
      state_->trim();
      block = state_->allocate(size, stream, tag);
    }
    if (block.ok()) return block;
    failed = block.status();
    ++state_->stats.out_of_memory;
  }
  if (failed.code() != Code::kOutOfDeviceMemory) return failed;
  return SPILLWAY_ERROR(
      Code::kOutOfDeviceMemory,
      std::to_string(size.count()) + " bytes asked for, " + failed.detail() + "; " + report());
}

Result<driver::DevicePtr> Heap::State::allocate(Bytes size, driver::Stream stream, TagId tag) {
  // Checked before rounding, which no size near 2^64 would survive.
  if (size > addresses.range_size()) {
    return SPILLWAY_ERROR(Code::kOutOfDeviceMemory, "more than twice the device's memory");
  }
  const Bytes rounded = size.rounded_up(kUnit);
  SPILLWAY_ASSIGN_OR_RETURN(Region* const region, region_for(stream, rounded));
  driver::DevicePtr at;
  SPILLWAY_ASSIGN_OR_RETURN(Block* const block, find_block(*region, rounded, at));

  // Nothing below may fail.
  block->requested = size;
  block->tag = tag;
  ++stats.allocations;
  ++stats.live_blocks;
  stats.live_blocks_peak = std::max(stats.live_blocks_peak, stats.live_blocks);
  stats.requested_total += size;
  stats.live_total += rounded;
  stats.requested += size;
  stats.requested_peak = std::max(stats.requested_peak, stats.requested);
  stats.live += rounded;
  if (stats.live > stats.live_peak) {
    stats.live_peak = stats.live;
    stats.away_at_live_peak = away();
  }
  return at;
}

Result<Block*> Heap::State::find_block(Region& region, Bytes size, driver::DevicePtr& at) {
  auto fitting = region.best_fit(size);
  if (!fitting) {
    SPILLWAY_RETURN_IF_ERROR(grow(region, size));
    fitting = region.best_fit(size);
  }
  at = *fitting;
  return region.take(at, size);
}

Status Heap::State::grow(Region& region, Bytes size) {
  SPILLWAY_ASSIGN_OR_RETURN(const Region::Memory mapped, region.grow(size, room()));
  stats.driver_allocations += mapped.chunks;
  stats.held_total += mapped.bytes;
  stats.held += mapped.bytes;
  if (stats.held > stats.held_peak) {
    stats.held_peak = stats.held;
    stats.away_at_held_peak = away();
  }
  return {};
}

void Heap::free(driver::DevicePtr at) {
  if (at == driver::DevicePtr{}) return;
  const Lock lock(state_->mutex);
  const State::Place place = state_->live_at(at);
  SPILLWAY_CHECK(place.region != nullptr && place.block->first == at);
  state_->free(place);
}

void Heap::State::free(const Place& place) {
  Block& block = place.block->second;
  ++stats.frees;
  --stats.live_blocks;
  stats.requested -= block.requested;
  stats.live -= block.size;
  for (const driver::Stream user : block.users) {
    const Result<driver::Fence> last = timeline(user).mark();
    if (!last.ok()) {
      block.state = BlockState::kLost;
      stats.lost += block.size;
      return;
    }
    block.fences.add(last.value());
  }
  place.region->give(place.block);
}

bool Heap::add_fence(driver::DevicePtr at, driver::Fence fence) {
  const Lock lock(state_->mutex);
  const State::Place place = state_->live_at(at);
  if (place.region == nullptr) return false;
  // Whatever the region's stream has been given already comes before its next block.
  const bool own = fence.set() && fence.timeline->stream() == place.region->stream() &&
                   fence.timeline->device() == state_->device.id;
  if (!own) place.block->second.fences.add(fence);
  return true;
}

bool Heap::record_use(driver::DevicePtr at, driver::Stream stream) {
  const Lock lock(state_->mutex);
  const State::Place place = state_->live_at(at);
  if (place.region == nullptr) return false;
  auto& users = place.block->second.users;
  const bool known = std::find(users.begin(), users.end(), stream) != users.end();
  if (!known && stream != place.region->stream()) users.push_back(stream);
  return true;
}

HeapBlockInfo Heap::find(driver::DevicePtr at) const {
  const Lock lock(state_->mutex);
  const State::Place place = state_->live_at(at);
  if (place.region == nullptr) return {};
  const Block& block = place.block->second;
  return {place.block->first, block.size, block.requested, true, !block.fences.empty(), block.tag};
}

Bytes Heap::trim_sync() {
  const Lock lock(state_->mutex);
  return state_->trim();
}

Bytes Heap::State::trim() {
  Bytes bytes;
  for (const auto& [begin, region] : regions) {
    const Region::Memory freed = region->trim(timeline(region->stream()));
    stats.held -= freed.bytes;
    stats.driver_releases += freed.chunks;
    bytes += freed.bytes;
  }
  return bytes;
}

void Heap::set_limit(Bytes limit) {
  const Lock lock(state_->mutex);
  state_->limit = limit;
}

Bytes Heap::limit() const {
  const Lock lock(state_->mutex);
  return state_->limit;
}

HeapStats Heap::stats() const {
  const Lock lock(state_->mutex);
  HeapStats stats = state_->stats;
  for (const auto& [begin, region] : state_->regions) {
    stats.held += region->backing().stuck();
    stats.pending += region->pending();
    stats.fence_waits += region->fence_waits();
  }
  return stats;
}

void Heap::reset_peaks() {
  const Lock lock(state_->mutex);
  HeapStats& stats = state_->stats;
  stats.live_blocks_peak = stats.live_blocks;
  stats.live_peak = stats.live;
  stats.requested_peak = stats.requested;
  stats.held_peak = stats.held;
  stats.away_at_live_peak = stats.away_at_held_peak = state_->away();
}

Result<Region*> Heap::State::region_for(driver::Stream stream, Bytes size) {
  const Pool pool = size <= kLargestSmall ? Pool::kSmall : Pool::kLarge;
  const auto known = by_stream.find({stream.handle(), pool});
  if (known != by_stream.end()) return known->second;
  SPILLWAY_ASSIGN_OR_RETURN(const Range range, addresses.take());
  auto made = std::make_unique<Region>(device, stream, range, addresses);
  Region* const region = made.get();
  regions.emplace(range.begin, std::move(made));
  by_stream.emplace(std::pair(stream.handle(), pool), region);
  return region;
}

driver::Timeline& Heap::State::timeline(driver::Stream stream) {
  std::unique_ptr<driver::Timeline>& known = timelines[stream.handle()];
  if (known == nullptr) known = std::make_unique<driver::Timeline>(device, stream);
  return *known;
}

Heap::State::Place Heap::State::live_at(driver::DevicePtr at) {
  const auto next = regions.upper_bound(at);
  if (next == regions.begin()) return {};
  Region& region = *std::prev(next)->second;
  const auto block = region.around(at);
  const bool live = block != region.blocks().end() && block->second.state == BlockState::kLive;
  return live ? Place{&region, block} : Place{};
}

Bytes Heap::State::room() const {
  if (limit.zero()) return Bytes{std::numeric_limits<std::uint64_t>::max()};
  return limit > stats.held ? limit - stats.held : Bytes{};
}

Bytes Heap::State::away() const {
  return Bytes{options.away == nullptr ? 0 : options.away->load(std::memory_order_relaxed)};
}

}  // namespace spillway
