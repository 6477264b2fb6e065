// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/pooled.h"
#include "allocator/base/result.h"
#include "allocator/driver/fence_set.h"

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace spillway {

/// The free bytes of the arena's pieces, and the fences of copies that may still use them.
///
/// The two are separate: free ranges merge regardless of their fences. Placement therefore depends
/// on sizes alone, and a slot gets exactly the fences of the bytes that it overlaps.
///
/// Threads: confined; the arena holds its lock.
class FreeRanges {
 public:
  /// Adds a free range of the given piece. Ranges of different pieces never merge, because a copy
  /// must not cross two registrations.
  void add(std::byte* at, Bytes size, std::byte* piece, driver::FenceSet fences);

  /// A range with the fences that cover it. Best fit: the smallest range that is large enough, the
  /// lowest address among equals.
  struct Taken {
    std::byte* at;
    driver::FenceSet fences;
  };

  std::optional<Taken> take(Bytes size);

  /// Removes a free range that is a whole piece. Returns false, without a change, if part of it is
  /// not free or has a fence.
  bool remove_piece(std::byte* piece, Bytes size);

  /// Free bytes with a fence that has not been observed to pass.
  [[nodiscard]] Bytes fenced() const { return fenced_; }

  /// Drops fences that have passed; no host wait.
  void forget_passed_fences();
  /// Blocks the host until all fences have passed. Errors: kDriver.
  Status wait_for_fences_sync();

 private:
  struct Range {
    Bytes size;
    std::byte* piece;
  };

  struct Fenced {
    Bytes size;
    driver::FenceSet fences;
  };

  // Allocated on threads that pack and freed on threads that unpack.
  template <typename Value>
  using ByAddress =
      std::map<std::byte*, Value, std::less<>, PoolAllocator<std::pair<std::byte* const, Value>>>;
  using Sized = std::pair<Bytes, std::byte*>;

  std::vector<Sized>::iterator sized(const Sized& range);
  void erase(ByAddress<Range>::iterator range);
  void resize(ByAddress<Range>::iterator range, Bytes size);
  ByAddress<Fenced>::iterator fenced_from(std::byte* at);
  driver::FenceSet take_fences(std::byte* at, Bytes size);

  // By their ends, which stay the same when a slot is taken from a range's front or freed before
  // it.
  ByAddress<Range> ranges_;
  std::vector<Sized> by_size_;  // sizes and ends, in order; few, because neighbors merge
  ByAddress<Fenced> fences_;    // by their begins; disjoint, within free ranges
  Bytes fenced_;
};

}  // namespace spillway
