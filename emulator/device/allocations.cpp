// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/allocations.h"

#include "emulator/device/generation.h"

#include <sys/mman.h>

#include <algorithm>

namespace spillway::emulator {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kSmall = 1U << 20U;
constexpr std::size_t kSmallUnit = 512;
constexpr std::size_t kUnit = 2U << 20U;

}  // namespace

CUresult Allocations::allocate(int device, std::size_t bytes, bool pooled, CUdeviceptr* at) {
  if (bytes == 0) {
    *at = 0;
    return CUDA_SUCCESS;
  }
  // Small requests share physical pages on a GPU, so they are not charged a page each here either.
  const auto charged = round_up(bytes, pooled || bytes < kSmall ? kSmallUnit : kUnit);
  const auto mapped = round_up(bytes, kPage);
  if (!charged || !mapped || !capacity_.take(device, *charged)) return CUDA_ERROR_OUT_OF_MEMORY;
  void* memory = mmap(
      nullptr, *mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    capacity_.give(device, *charged);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  blocks_.emplace(begin, Block{{begin, begin + *mapped}, *charged, device, pooled});
  if (pooled) {
    Pool& pool = pools_[static_cast<std::size_t>(device)];
    pool.used += *charged;
    pool.peak = std::max(pool.peak, pool.used);
  }
  *at = begin;
  return CUDA_SUCCESS;
}

Allocations::Block* Allocations::find(CUdeviceptr at) {
  const auto found = blocks_.find(at);
  return found == blocks_.end() ? nullptr : &found->second;
}

void Allocations::free(CUdeviceptr at) {
  const auto found = blocks_.find(at);
  const Block& block = found->second;
  capacity_.give(block.device, block.charged);
  if (block.pooled) pool(block.device).used -= block.charged;
  munmap(block.range.at(), block.range.bytes());
  rights_were_taken();
  blocks_.erase(found);
}

const Allocations::Block* Allocations::holding(Range range) const {
  const auto found = first_overlap(blocks_, range);
  return found != blocks_.end() && found->second.range.contains(range) ? &found->second : nullptr;
}

bool Allocations::pool_allows(const Block& block, int device, bool write) const {
  if (device == block.device) return true;
  const Pool& pool = pools_[static_cast<std::size_t>(block.device)];
  const CUmemAccess_flags given = pool.access[static_cast<std::size_t>(device)];
  return given == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ||
         (given == CU_MEM_ACCESS_FLAGS_PROT_READ && !write);
}

bool Allocations::overlaps(Range range) const {
  return first_overlap(blocks_, range) != blocks_.end();
}

}  // namespace spillway::emulator
