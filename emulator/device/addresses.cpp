// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/addresses.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>

namespace spillway::emulator {
namespace {

constexpr int kNothing = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
/// ThreadSanitizer allows program memory here; only its libraries are nearby.
constexpr std::uintptr_t kFirst = 0x7e90'0000'0000;

struct Arena {
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};
};

constinit std::array<Arena, 4096> arenas{};
constinit std::atomic<std::size_t> arena_count{0};
constinit std::uintptr_t next_arena = kFirst;

/// False if there is no memory to record it.
bool remember(Range range) {
  const std::size_t count = arena_count.load();
  for (std::size_t i = 0; i < count; ++i) {
    if (arenas[i].end.load() != range.begin) continue;
    arenas[i].end.store(range.end);
    return true;
  }
  if (count == arenas.size()) return false;
  arenas[count].begin.store(range.begin);
  arenas[count].end.store(range.end);
  arena_count.store(count + 1);
  return true;
}

std::optional<Range> map_at_next_arena(std::size_t bytes) {
  void* const wanted = reinterpret_cast<void*>(next_arena);
  void* got = mmap(wanted, bytes, PROT_NONE, kNothing | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) return std::nullopt;
  if (got != wanted) {
    munmap(got, bytes);
    return std::nullopt;
  }
  next_arena += bytes;
  return Range::of(got, bytes);
}

std::optional<Range> map_anywhere(std::size_t bytes) {
  const std::size_t padded = bytes + kGranularity;
  void* got = mmap(nullptr, padded, PROT_NONE, kNothing, -1, 0);
  if (got == MAP_FAILED) return std::nullopt;
  const auto begin = reinterpret_cast<std::uintptr_t>(got);
  const std::uintptr_t first = (begin + kGranularity - 1) / kGranularity * kGranularity;
  if (first > begin) munmap(got, first - begin);
  munmap(reinterpret_cast<void*>(first + bytes), begin + kGranularity - first);
  return Range{first, first + bytes};
}

std::size_t read_most_mappings() {
  std::size_t most = 65530;
  if (FILE* file = std::fopen("/proc/sys/vm/max_map_count", "re")) {
    if (std::fscanf(file, "%zu", &most) != 1) most = 65530;
    std::fclose(file);
  }
  return most;
}

}  // namespace

bool is_device_address(std::uintptr_t at) {
  const std::size_t count = arena_count.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < count; ++i) {
    if (arenas[i].begin.load(std::memory_order_relaxed) <= at &&
        at < arenas[i].end.load(std::memory_order_relaxed)) {
      return true;
    }
  }
  return false;
}

std::size_t most_pieces() {
  static const std::size_t most = read_most_mappings() / 16;
  return most;
}

std::optional<Range> Addresses::take(std::size_t bytes, std::size_t alignment) {
  const auto rounded = round_up(bytes, kGranularity);
  const std::size_t aligned = std::max(alignment, kGranularity);
  if (!rounded || *rounded > SIZE_MAX / 4 || aligned > SIZE_MAX / 4) return std::nullopt;
  if (auto taken = free_.take(*rounded, aligned)) return taken;
  return grow(*rounded + (aligned - kGranularity)) ? free_.take(*rounded, aligned) : std::nullopt;
}

void Addresses::give(Range range) {
  range.end = range.begin + *round_up(range.bytes(), kGranularity);
  free_.give(range);
  if (free_.count() < most_pieces()) make_inaccessible(range);
}

bool Addresses::grow(std::size_t bytes) {
  for (std::size_t size = std::max(step_, bytes);; size = std::max(bytes, size / 2)) {
    const std::size_t whole = size / kGranularity * kGranularity;
    auto arena = map_at_next_arena(whole);
    if (!arena) arena = map_anywhere(whole);
    if (arena) {
      if (!remember(*arena)) {
        munmap(arena->at(), arena->bytes());
        return false;
      }
      free_.give(*arena);
      return true;
    }
    if (size == bytes) return false;
  }
}

bool make_inaccessible(Range range) {
  return mmap(range.at(), range.bytes(), PROT_NONE, kNothing | MAP_FIXED, -1, 0) != MAP_FAILED;
}

}  // namespace spillway::emulator
