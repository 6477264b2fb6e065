// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/pools/provider_memory.h"

#include "torch_glue/base/check.h"

#include <algorithm>
#include <iterator>

namespace spillway {
namespace {

constexpr Bytes kAlignment{512};
constexpr Bytes kSegment{2u << 20};

Bytes round_up(Bytes size, Bytes to) {
  return Bytes{(size.count() + to.count() - 1) / to.count() * to.count()};
}

}  // namespace

ProviderMemory::ProviderMemory(
    driver::Device device, std::shared_ptr<c10::cuda::CUDACachingAllocator::CUDAAllocator> provider)
    : device_(device), provider_(std::move(provider)), timelines_(device) {}

void* ProviderMemory::allocate(Bytes size, cudaStream_t stream) {
  // No allocator has this much, and rounding must not overflow.
  if (size.count() > std::uint64_t{1} << 48) return nullptr;
  const Bytes rounded = round_up(size, kAlignment);
  std::byte* at = take(rounded, stream);
  if (at == nullptr) {
    const Bytes segment = round_up(rounded, kSegment);
    at = static_cast<std::byte*>(provider_->raw_alloc(segment.count()));
    if (at == nullptr) return nullptr;
    const Lock lock(mutex_);
    segments_[at] = {at, segment, stream};
    if (rounded < segment) free_[stream].add(at + rounded.count(), segment - rounded, at, {});
  }
  const Lock lock(mutex_);
  live_[at] = {rounded, size, stream, {}};
  return at;
}

std::byte* ProviderMemory::take(Bytes size, cudaStream_t stream) {
  const Lock lock(mutex_);
  const auto range = free_[stream].take(size);
  if (!range) return nullptr;
  for (const driver::Fence& fence : range->fences) {
    if (driver::Timeline::wait(driver::Stream(stream, device_.id), fence).ok()) continue;
    // Its other user cannot be waited for now, because its stream is being captured.
    const Segment& segment = std::prev(segments_.upper_bound(range->at))->second;
    free_[stream].add(range->at, size, segment.at, range->fences);
    return nullptr;
  }
  return range->at;
}

bool ProviderMemory::empty() const {
  const Lock lock(mutex_);
  return segments_.empty();
}

Bytes ProviderMemory::free(void* at) {
  const Lock lock(mutex_);
  const auto block = live_.find(static_cast<std::byte*>(at));
  if (block == live_.end()) return {};
  driver::FenceSet fences;
  for (const cudaStream_t user : block->second.users)
    fences.add(timelines_.of(driver::Stream(user, device_.id)).promise());
  const Segment& segment = std::prev(segments_.upper_bound(block->first))->second;
  free_[block->second.stream].add(block->first, block->second.size, segment.at, std::move(fences));
  const Bytes requested = block->second.requested;
  live_.erase(block);
  return requested;
}

bool ProviderMemory::record_use(void* at, cudaStream_t stream) {
  const Lock lock(mutex_);
  const auto block = live_.find(static_cast<std::byte*>(at));
  if (block == live_.end()) return false;
  auto& users = block->second.users;
  const bool known = std::find(users.begin(), users.end(), stream) != users.end();
  if (stream != block->second.stream && !known) users.push_back(stream);
  return true;
}

std::pair<void*, ProviderMemory::Block> ProviderMemory::find(void* at) const {
  const Lock lock(mutex_);
  auto block = live_.upper_bound(static_cast<std::byte*>(at));
  if (block == live_.begin()) return {};
  --block;
  if (static_cast<std::byte*>(at) >= block->first + block->second.size.count()) return {};
  return *block;
}

void ProviderMemory::trim_sync() {
  std::vector<Segment> gone;
  {
    const Lock lock(mutex_);
    for (auto& [stream, ranges] : free_)
      check(ranges.wait_for_fences_sync());
    for (auto segment = segments_.begin(); segment != segments_.end();) {
      const auto [at, size, stream] = segment->second;
      if (free_[stream].remove_piece(at, size)) {
        gone.push_back(segment->second);
        segment = segments_.erase(segment);
      } else {
        ++segment;
      }
    }
  }
  if (gone.empty()) return;
  const driver::CurrentDevice current(*device_.api, device_.context);
  for (const Segment& segment : gone) {
    // Its own stream may still use it, and the provider has no stream argument.
    C10_CUDA_CHECK(cudaStreamSynchronize(segment.stream));
    provider_->raw_delete(segment.at);
  }
}

void ProviderMemory::describe(c10::DeviceIndex device,
                              c10::MempoolId_t pool,
                              std::vector<c10::CachingDeviceAllocator::SegmentInfo>& into) const {
  const Lock lock(mutex_);
  for (const auto& [at, from] : segments_) {
    c10::CachingDeviceAllocator::SegmentInfo segment;
    segment.device = device;
    segment.address = reinterpret_cast<size_t>(at);
    segment.total_size = from.size.count();
    segment.stream = from.stream;
    segment.is_large = true;
    segment.owner_private_pool_id = pool;
    const auto add = [&](size_t size, size_t requested, bool allocated) {
      if (size == 0) return;
      c10::CachingDeviceAllocator::BlockInfo block;
      block.size = size;
      block.requested_size = requested;
      block.allocated = block.active = allocated;
      segment.blocks.push_back(std::move(block));
    };
    const std::byte* reached = at;
    const std::byte* const end = at + from.size.count();
    for (auto live = live_.lower_bound(at); live != live_.end() && live->first < end; ++live) {
      add(static_cast<size_t>(live->first - reached), 0, false);
      add(live->second.size.count(), live->second.requested.count(), true);
      reached = live->first + live->second.size.count();
      segment.allocated_size += live->second.size.count();
      segment.requested_size += live->second.requested.count();
    }
    add(static_cast<size_t>(end - reached), 0, false);
    segment.active_size = segment.allocated_size;
    into.push_back(std::move(segment));
  }
}

}  // namespace spillway
