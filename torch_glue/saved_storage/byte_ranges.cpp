// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_storage/byte_ranges.h"

#include <algorithm>

namespace spillway {
namespace {

/// A link copies this many bytes in about the time that it takes to submit and start one copy.
constexpr Bytes kCopyCost{64U << 10U};

/// Maximum unneeded bytes at each end of a range, as a part of the range.
constexpr std::uint64_t kLittle = 8;

bool is_near(const ByteRange& one, const ByteRange& other) {
  return one.begin < other.end + kCopyCost && other.begin < one.end + kCopyCost;
}

}  // namespace

ByteRange hull(const ByteRange& left, const ByteRange& right) {
  return {std::min(left.begin, right.begin), std::max(left.end, right.end)};
}

std::vector<ByteRange> uncovered(const ByteRange& wanted, const std::vector<ByteRange>& known) {
  std::vector<ByteRange> missing;
  Bytes from = wanted.begin;
  for (const ByteRange& have : known) {
    if (!have.overlaps({from, wanted.end})) continue;
    if (from < have.begin) missing.push_back({from, have.begin});
    from = have.end;
    if (from >= wanted.end) return missing;
  }
  if (from < wanted.end) missing.push_back({from, wanted.end});
  return missing;
}

ByteRange extend_to_block(ByteRange wanted, const std::vector<ByteRange>& known, Bytes size) {
  const bool beside = std::any_of(
      known.begin(), known.end(), [&](const ByteRange& have) { return is_near(wanted, have); });
  if (beside) {
    wanted.begin = wanted.begin.rounded_down(kCopyCost);
    wanted.end = std::min(wanted.end.rounded_up(kCopyCost), size);
  }
  const Bytes little = std::min(kCopyCost, Bytes{wanted.size().count() / kLittle});
  if (wanted.begin < little) wanted.begin = Bytes{};
  if (size - wanted.end < little) wanted.end = size;
  return wanted;
}

}  // namespace spillway
