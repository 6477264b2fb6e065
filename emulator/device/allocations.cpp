// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/allocations.h"

#include "emulator/device/views.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace spillway::emulator {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kSmall = 1U << 20U;
constexpr std::size_t kSmallUnit = 512;
constexpr std::size_t kLeastStep = 1ULL << 30U;
constexpr std::size_t kMaxStep = 64ULL << 30U;

/// Address space with headroom for a fragmented device.
std::size_t address_step(std::size_t capacity) {
  return std::clamp(capacity > kMaxStep ? kMaxStep : 2 * capacity, kLeastStep, kMaxStep);
}

}  // namespace

Allocations::Allocations(Capacity& capacity, std::deque<MemoryFile>& files, bool poison)
    : capacity_(capacity), files_(files), poison_(poison) {
  for (int device = 0; device < static_cast<int>(files.size()); ++device) {
    addresses_.emplace_back(address_step(capacity.total()));
    plain_.emplace_back().device = device;
    current_.push_back(&create_pool(device, 0));
    current_.back()->by_default = true;
  }
}

CUresult Allocations::allocate(int device, std::size_t bytes, CUdeviceptr* at) {
  return take(plain_[static_cast<std::size_t>(device)], bytes, false, at);
}

CUresult Allocations::allocate(Pool& pool, std::size_t bytes, CUdeviceptr* at) {
  return take(pool, bytes, true, at);
}

CUresult Allocations::take(Pool& pool, std::size_t bytes, bool pooled, CUdeviceptr* at) {
  if (bytes == 0) {
    *at = 0;
    return CUDA_SUCCESS;
  }
  const auto rounded = round_up(bytes, kSmallUnit);
  if (!rounded) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto taken = *rounded < kSmall ? take_small(pool, *rounded) : take_pages(pool, *rounded);
  if (!taken) return CUDA_ERROR_OUT_OF_MEMORY;
  const Range range = {taken->begin, taken->begin + *rounded};
  if (poison_) std::memset(range.at(), kPoison, range.bytes());
  pool.used.add(*rounded);
  blocks_.emplace(range.begin, Block{range, bytes, pool.device, &pool, pooled});
  *at = range.begin;
  return CUDA_SUCCESS;
}

std::optional<Range> Allocations::take_small(Pool& pool, std::size_t bytes) {
  if (const auto found = pool.free.take(bytes, kSmallUnit)) return found;
  const auto page = take_pages(pool, kGranularity);
  if (!page) return std::nullopt;
  pool.free.give(*page);
  return pool.free.take(bytes, kSmallUnit);
}

std::optional<Range> Allocations::take_pages(Pool& pool, std::size_t bytes) {
  const auto whole = round_up(bytes, kGranularity);
  if (!whole || (pool.most != 0 && *whole > pool.most - pool.reserved.now)) return std::nullopt;
  if (!capacity_.take(pool.device, *whole)) return std::nullopt;
  const auto range = addresses(pool.device).take(*whole, kGranularity);
  const bool mapped =
      range &&
      file(pool.device).map(*range, static_cast<off_t>(range->begin), PROT_READ | PROT_WRITE);
  if (!mapped) {
    capacity_.give(pool.device, *whole);
    if (range) addresses(pool.device).give(*range);
    return std::nullopt;
  }
  pool.reserved.add(*whole);
  return range;
}

Allocations::Block* Allocations::find(CUdeviceptr at) {
  const auto found = blocks_.find(at);
  return found == blocks_.end() ? nullptr : &found->second;
}

void Allocations::free(CUdeviceptr at) {
  const auto found = blocks_.find(at);
  const Block block = found->second;
  blocks_.erase(found);
  bump_mapping_generation();
  Pool& pool = *block.pool;
  pool.used.remove(block.range.bytes());
  if (block.range.bytes() < kSmall) {
    give_small(pool, block.range);
  } else {
    give_pages(
        pool,
        {block.range.begin, block.range.begin + *round_up(block.range.bytes(), kGranularity)});
  }
  if (pool.destroyed && pool.used.now == 0) {
    std::erase_if(pools_, [&](const auto& each) { return each.get() == &pool; });
  }
}

void Allocations::give_small(Pool& pool, Range range) {
  if (poison_) std::memset(range.at(), kPoison, range.bytes());
  pool.free.give(range);
  const Range free = *pool.free.around(range);
  const Range pages = {(free.begin + kGranularity - 1) / kGranularity * kGranularity,
                       free.end / kGranularity * kGranularity};
  if (pages.begin >= pages.end) return;
  pool.free.take(pages);
  give_pages(pool, pages);
}

void Allocations::give_pages(Pool& pool, Range range) {
  file(pool.device).clear(static_cast<off_t>(range.begin), range.bytes());
  addresses(pool.device).give(range);
  capacity_.give(pool.device, range.bytes());
  pool.reserved.remove(range.bytes());
}

const Allocations::Block* Allocations::holding(Range range) const {
  const auto found = first_overlap(blocks_, range);
  return found != blocks_.end() && found->second.range.contains(range) ? &found->second : nullptr;
}

bool Allocations::overlaps(Range range) const {
  return first_overlap(blocks_, range) != blocks_.end();
}

CUresult Allocations::import(const Ticket& ticket, int file, CUdeviceptr* at) {
  const auto device = device_of(ticket);
  const std::size_t before = ticket.offset % kPage;
  const auto whole = round_up(before + ticket.bytes, kPage);
  const auto range = whole ? addresses(device).take(*whole, kGranularity) : std::nullopt;
  if (!range) return CUDA_ERROR_MAP_FAILED;
  const auto offset = static_cast<off_t>(ticket.offset - before);
  if (!MemoryFile::map(
          file, {range->begin, range->begin + *whole}, offset, PROT_READ | PROT_WRITE)) {
    addresses(device).give(*range);
    return CUDA_ERROR_MAP_FAILED;
  }
  const std::uintptr_t begin = range->begin + before;
  Block block = {{begin, begin + ticket.bytes}, ticket.bytes, device, nullptr, false};
  block.opened = 1;
  blocks_.emplace(begin, block);
  imports_.emplace(begin, ticket);
  *at = begin;
  return CUDA_SUCCESS;
}

std::optional<CUdeviceptr> Allocations::open_again(const Ticket& ticket) {
  for (const auto& [at, known] : imports_) {
    if (std::memcmp(&known, &ticket, sizeof ticket) != 0) continue;
    ++blocks_.at(at).opened;
    return at;
  }
  return std::nullopt;
}

void Allocations::forget_import(CUdeviceptr at) {
  const Block block = blocks_.at(at);
  const Range pages = {at / kPage * kPage, *round_up(block.range.end, kPage)};
  imports_.erase(at);
  blocks_.erase(at);
  bump_mapping_generation();
  addresses(block.device).give(pages);
}

Pool& Allocations::create_pool(int device, std::size_t most) {
  pools_.push_back(std::make_unique<Pool>());
  pools_.back()->device = device;
  pools_.back()->most = most;
  return *pools_.back();
}

Pool* Allocations::find_pool(const void* handle) {
  const auto found = std::find_if(pools_.begin(), pools_.end(), [&](const auto& each) {
    return each.get() == handle && !each->destroyed;
  });
  return found == pools_.end() ? nullptr : found->get();
}

void Allocations::destroy_pool(Pool& pool) {
  pool.destroyed = true;
  if (&current_pool(pool.device) == &pool) use_pool(default_pool(pool.device));
  if (pool.used.now != 0) return;
  std::erase_if(pools_, [&](const auto& each) { return each.get() == &pool; });
}

bool Allocations::pool_allows(const Block& block, int device, bool write) {
  if (device == block.device) return true;
  const CUmemAccess_flags given = block.pool->access[static_cast<std::size_t>(device)];
  return given == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
         (given == CU_MEM_ACCESS_FLAGS_PROT_READ && !write);
}

}  // namespace spillway::emulator
