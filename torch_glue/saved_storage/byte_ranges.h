// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"

#include <vector>

namespace spillway {

/// The bytes begin <= b < end of one storage.
struct ByteRange {
  Bytes begin;
  Bytes end;

  [[nodiscard]] bool empty() const { return begin == end; }

  [[nodiscard]] Bytes size() const { return end - begin; }

  [[nodiscard]] bool contains(const ByteRange& other) const {
    return begin <= other.begin && other.end <= end;
  }

  [[nodiscard]] bool overlaps(const ByteRange& other) const {
    return begin < other.end && other.begin < end;
  }

  friend bool operator==(const ByteRange&, const ByteRange&) = default;
};

/// The smallest range that contains both.
ByteRange hull(const ByteRange& left, const ByteRange& right);

/// The parts of `wanted` that are not in `known`, in order.
/// Requires: `known` is disjoint and in order.
std::vector<ByteRange> uncovered(const ByteRange& wanted, const std::vector<ByteRange>& known);

/// Extends `wanted`, a range of a storage of `size` bytes, so that fewer copies are needed:
/// - next to bytes that are known, in any order, to whole blocks. Parts that are saved one after
///   the other (the steps of a sequence) then need few copies;
/// - to an end of the storage if little is left over there. Matrix columns that are saved
///   separately (queries, keys and values) begin and end a part of a row from it.
ByteRange extend_to_block(ByteRange wanted, const std::vector<ByteRange>& known, Bytes size);

}  // namespace spillway
