// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/history/mapped_ranges.h"

#include <algorithm>

namespace spillway {
namespace {

/// The parts of `ranges` that no range of the same stream in `without` covers. Both are sorted.
std::vector<MappedRange> less(const std::vector<MappedRange>& ranges,
                              const std::vector<MappedRange>& without) {
  std::vector<MappedRange> left;
  for (const MappedRange& range : ranges) {
    CUdeviceptr from = range.at;
    for (const MappedRange& other : without) {
      if (other.stream != range.stream || other.end() <= from || other.at >= range.end()) continue;
      if (other.at > from) left.push_back({from, other.at - from, range.stream});
      from = other.end();
    }
    if (from < range.end()) left.push_back({from, range.end() - from, range.stream});
  }
  return left;
}

}  // namespace

MappedRanges::Changes MappedRanges::update(const std::vector<HeapSegmentInfo>& now) {
  std::vector<MappedRange> ranges;
  for (const HeapSegmentInfo& segment : now)
    ranges.push_back({segment.at.address(), segment.size.count(), segment.stream});
  std::sort(ranges.begin(), ranges.end(), [](const MappedRange& a, const MappedRange& b) {
    return a.at < b.at;
  });
  Changes changes{less(ranges_, ranges), less(ranges, ranges_)};
  ranges_ = std::move(ranges);
  return changes;
}

}  // namespace spillway
