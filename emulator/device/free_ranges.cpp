// SPDX-License-Identifier: Apache-2.0
#include "emulator/device/free_ranges.h"

namespace spillway::emulator {

void FreeRanges::give(Range range) {
  auto next = by_begin_.lower_bound(range.begin);
  if (next != by_begin_.end() && next->first == range.end) {
    const Range after = next->second.range;
    range.end = after.end;
    erase(after);
    next = by_begin_.lower_bound(range.begin);
  }
  if (next != by_begin_.begin() && std::prev(next)->second.range.end == range.begin) {
    const Range before = std::prev(next)->second.range;
    range.begin = before.begin;
    erase(before);
  }
  insert(range);
}

std::optional<Range> FreeRanges::take(std::size_t bytes, std::size_t alignment) {
  for (auto each = by_size_.lower_bound({bytes, 0}); each != by_size_.end(); ++each) {
    const Range free = {each->second, each->second + each->first};
    const auto begin = round_up(free.begin, alignment);
    if (!begin || *begin > free.end || free.end - *begin < bytes) continue;
    const Range taken = {*begin, *begin + bytes};
    take(taken);
    return taken;
  }
  return std::nullopt;
}

bool FreeRanges::take(Range range) {
  const auto free = around(range);
  if (!free) return false;
  erase(*free);
  if (free->begin < range.begin) insert({free->begin, range.begin});
  if (range.end < free->end) insert({range.end, free->end});
  return true;
}

std::optional<Range> FreeRanges::around(Range range) const {
  const auto found = first_overlap(by_begin_, range);
  if (found == by_begin_.end() || !found->second.range.contains(range)) return std::nullopt;
  return found->second.range;
}

void FreeRanges::insert(Range range) {
  by_begin_.emplace(range.begin, Entry{range});
  by_size_.emplace(range.bytes(), range.begin);
}

void FreeRanges::erase(Range range) {
  by_begin_.erase(range.begin);
  by_size_.erase({range.bytes(), range.begin});
}

}  // namespace spillway::emulator
