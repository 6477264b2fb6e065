// SPDX-License-Identifier: Apache-2.0
#include "allocator/transfer/free_ranges.h"

#include "allocator/base/check.h"

#include <algorithm>
#include <iterator>

namespace spillway {
namespace {

std::byte* end_of(std::byte* at, Bytes size) {
  return at + size.count();
}

Bytes between(const std::byte* from, const std::byte* to) {
  return Bytes{static_cast<std::uint64_t>(to - from)};
}

}  // namespace

void FreeRanges::add(std::byte* at, Bytes size, std::byte* piece, driver::FenceSet fences) {
  if (!fences.empty()) {
    fences_.emplace(at, Fenced{size, std::move(fences)});
    fenced_ += size;
  }
  const auto after = ranges_.lower_bound(at);
  if (after != ranges_.end() && after->first == end_of(at, size) && after->second.piece == piece) {
    size += after->second.size;
    erase(after);
  }
  const auto next = ranges_.lower_bound(at);
  if (next != ranges_.begin()) {
    const auto before = std::prev(next);
    if (end_of(before->first, before->second.size) == at && before->second.piece == piece) {
      at = before->first;
      size += before->second.size;
      erase(before);
    }
  }
  insert(at, {size, piece});
}

std::optional<FreeRanges::Place> FreeRanges::take(Bytes size) {
  const auto fit = by_size_.lower_bound({size, nullptr});
  if (fit == by_size_.end()) return std::nullopt;
  const auto found = ranges_.find(fit->second);
  std::byte* at = found->first;
  const Range range = found->second;
  erase(found);
  if (range.size > size) insert(end_of(at, size), {range.size - size, range.piece});
  return Place{at, take_fences(at, size)};
}

bool FreeRanges::remove_piece(std::byte* piece, Bytes size) {
  const auto whole = ranges_.find(piece);
  if (whole == ranges_.end() || whole->second.size != size) return false;
  const auto fence = fences_.lower_bound(piece);
  if (fence != fences_.end() && fence->first < end_of(piece, size)) return false;
  erase(whole);
  return true;
}

void FreeRanges::forget_passed_fences() {
  for (auto each = fences_.begin(); each != fences_.end();) {
    if (!each->second.fences.drop_passed()) {
      ++each;
      continue;
    }
    fenced_ -= each->second.size;
    each = fences_.erase(each);
  }
}

Status FreeRanges::wait_for_fences_sync() {
  for (const auto& [at, fenced] : fences_) {
    SPILLWAY_RETURN_IF_ERROR(fenced.fences.wait_sync());
  }
  forget_passed_fences();
  return {};
}

void FreeRanges::erase(ByPlace<Range>::iterator at) {
  by_size_.erase({at->second.size, at->first});
  ranges_.erase(at);
}

void FreeRanges::insert(std::byte* at, Range range) {
  ranges_.emplace(at, range);
  by_size_.emplace(range.size, at);
}

driver::FenceSet FreeRanges::take_fences(std::byte* at, Bytes size) {
  driver::FenceSet taken;
  std::byte* const end = end_of(at, size);
  // No fenced bytes reach from before `at` into it: places begin where a free range does.
  auto each = fences_.lower_bound(at);
  while (each != fences_.end() && each->first < end) {
    std::byte* const to = end_of(each->first, each->second.size);
    driver::FenceSet fences = std::move(each->second.fences);
    taken.add(fences);
    fenced_ -= between(each->first, std::min(to, end));
    each = fences_.erase(each);
    if (to > end) fences_.emplace(end, Fenced{between(end, to), std::move(fences)});
  }
  return taken;
}

}  // namespace spillway
