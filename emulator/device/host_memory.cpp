// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/host_memory.h"

#include "emulator/device/views.h"

#include <sys/mman.h>

#include <algorithm>

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
  insert({{begin, begin + *mapped}, true});
  *at = memory;
  return CUDA_SUCCESS;
}

CUresult HostMemory::free(void* at, Range* freed) {
  const auto found = pieces_.find(reinterpret_cast<std::uintptr_t>(at));
  if (found == pieces_.end() || !found->second.allocated) return CUDA_ERROR_INVALID_VALUE;
  *freed = found->second.range;
  erase(found);
  munmap(freed->at(), freed->bytes());
  bump_mapping_generation();
  return CUDA_SUCCESS;
}

CUresult HostMemory::add(Range range) {
  if (overlaps(range)) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  insert({range, false});
  return CUDA_SUCCESS;
}

CUresult HostMemory::remove(void* at, Range* removed) {
  const auto found = pieces_.find(reinterpret_cast<std::uintptr_t>(at));
  if (found == pieces_.end() || found->second.allocated) {
    return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
  }
  *removed = found->second.range;
  erase(found);
  bump_mapping_generation();
  return CUDA_SUCCESS;
}

void HostMemory::insert(Piece piece) {
  bytes_ += piece.range.bytes();
  peak_ = std::max(peak_, bytes_);
  pieces_.emplace(piece.range.begin, piece);
}

void HostMemory::erase(std::map<std::uintptr_t, Piece>::iterator piece) {
  bytes_ -= piece->second.range.bytes();
  pieces_.erase(piece);
}

bool HostMemory::holds(Range range) const {
  const auto found = first_overlap(pieces_, range);
  return found != pieces_.end() && found->second.range.contains(range);
}

std::optional<Range> HostMemory::piece_of(Range range) const {
  const auto found = first_overlap(pieces_, range);
  if (found == pieces_.end() || !found->second.range.contains(range)) return std::nullopt;
  return found->second.range;
}

std::optional<Range> HostMemory::around(Range range) const {
  auto each = first_overlap(pieces_, range);
  if (each == pieces_.end() || each->second.range.begin > range.begin) return std::nullopt;
  Range merged = each->second.range;
  for (++each; each != pieces_.end() && each->first == merged.end && merged.end < range.end;
       ++each) {
    merged.end = each->second.range.end;
  }
  return merged.contains(range) ? std::optional<Range>(merged) : std::nullopt;
}

bool HostMemory::overlaps(Range range) const {
  return first_overlap(pieces_, range) != pieces_.end();
}

}  // namespace spillway::emulator
