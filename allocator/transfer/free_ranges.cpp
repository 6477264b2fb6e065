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

std::byte* begin_of(std::byte* end, Bytes size) {
  return end - size.count();
}

Bytes between(const std::byte* from, const std::byte* to) {
  return Bytes{static_cast<std::uint64_t>(to - from)};
}

}  // namespace

void FreeRanges::add(std::byte* at, Bytes size, std::byte* piece, driver::FenceSet fences) {
  if (!fences.empty()) {
    fences_.emplace_hint(fenced_from(at), at, Fenced{size, std::move(fences)});
    fenced_ += size;
  }
  // The range that ends here, if any, and the next one.
  auto before = ranges_.lower_bound(at);
  const auto after = before != ranges_.end() && before->first == at ? std::next(before) : before;
  const bool joins_before = before != after && before->second.piece == piece;
  const bool joins_after = after != ranges_.end() && after->second.piece == piece &&
                           begin_of(after->first, after->second.size) == end_of(at, size);
  const Bytes all = size + (joins_before ? before->second.size : Bytes{});
  if (joins_before) erase(before);
  if (joins_after) {
    resize(after, after->second.size + all);
  } else {
    std::byte* const end = end_of(at, size);
    ranges_.emplace_hint(after, end, Range{all, piece});
    by_size_.insert(sized({all, end}), {all, end});
  }
}

std::optional<FreeRanges::Taken> FreeRanges::take(Bytes size) {
  const auto fit = sized({size, nullptr});
  if (fit == by_size_.end()) return std::nullopt;
  const auto range = ranges_.find(fit->second);
  std::byte* const at = begin_of(range->first, range->second.size);
  if (range->second.size == size) {
    erase(range);
  } else {
    resize(range, range->second.size - size);
  }
  return Taken{at, take_fences(at, size)};
}

bool FreeRanges::remove_piece(std::byte* piece, Bytes size) {
  const auto whole = ranges_.find(end_of(piece, size));
  if (whole == ranges_.end() || whole->second.size != size) return false;
  const auto fence = fenced_from(piece);
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

/// Its position, or the position to insert it at.
std::vector<FreeRanges::Sized>::iterator FreeRanges::sized(const Sized& range) {
  return std::lower_bound(by_size_.begin(), by_size_.end(), range);
}

void FreeRanges::erase(ByAddress<Range>::iterator range) {
  by_size_.erase(sized({range->second.size, range->first}));
  ranges_.erase(range);
}

void FreeRanges::resize(ByAddress<Range>::iterator range, Bytes size) {
  const auto from = sized({range->second.size, range->first});
  const Sized resized{size, range->first};
  const auto to = sized(resized);
  if (to > from) {
    *std::move(std::next(from), to, from) = resized;
  } else {
    std::move_backward(to, from, std::next(from));
    *to = resized;
  }
  range->second.size = size;
}

/// The first fenced bytes that begin at `at` or after it. Slots are usually taken from below and
/// returned from above, so it is the lowest of all.
FreeRanges::ByAddress<FreeRanges::Fenced>::iterator FreeRanges::fenced_from(std::byte* at) {
  const auto lowest = fences_.begin();
  if (lowest == fences_.end() || lowest->first >= at) return lowest;
  return fences_.lower_bound(at);
}

driver::FenceSet FreeRanges::take_fences(std::byte* at, Bytes size) {
  driver::FenceSet taken;
  std::byte* const end = end_of(at, size);
  // No fenced bytes extend into it from before `at`: slots begin where a free range does.
  auto each = fenced_from(at);
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
