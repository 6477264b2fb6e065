// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/host_memory.h"

#include <sys/mman.h>

namespace spillway::emulator {

CUresult HostMemory::allocate(std::size_t bytes, void** at) {
  constexpr std::size_t kPage = 4096;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto mapped = round_up(bytes, kPage);
  if (!mapped) return CUDA_ERROR_OUT_OF_MEMORY;
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS;
  void* memory = mmap(nullptr, *mapped, PROT_READ | PROT_WRITE, kFlags, -1, 0);
  if (memory == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  pieces_.emplace(begin, Piece{{begin, begin + *mapped}, true});
  *at = memory;
  return CUDA_SUCCESS;
}

CUresult HostMemory::free(void* at, Range* freed) {
  const auto found = pieces_.find(reinterpret_cast<std::uintptr_t>(at));
  if (found == pieces_.end() || !found->second.allocated) return CUDA_ERROR_INVALID_VALUE;
  *freed = found->second.range;
  pieces_.erase(found);
  munmap(freed->at(), freed->bytes());
  return CUDA_SUCCESS;
}

CUresult HostMemory::add(Range range) {
  if (overlaps(range)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  pieces_.emplace(range.begin, Piece{range, false});
  return CUDA_SUCCESS;
}

CUresult HostMemory::remove(void* at, Range* removed) {
  const auto found = pieces_.find(reinterpret_cast<std::uintptr_t>(at));
  if (found == pieces_.end() || found->second.allocated) {
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  *removed = found->second.range;
  pieces_.erase(found);
  return CUDA_SUCCESS;
}

bool HostMemory::holds(Range range) const {
  const auto found = first_overlap(pieces_, range);
  return found != pieces_.end() && found->second.range.contains(range);
}

bool HostMemory::overlaps(Range range) const {
  return first_overlap(pieces_, range) != pieces_.end();
}

}  // namespace spillway::emulator
