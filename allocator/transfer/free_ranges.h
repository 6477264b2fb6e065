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

/// Which bytes of the arena's pieces are free, and which of those a copy may still use.
///
/// The two are kept apart: free ranges merge whatever their fences, so that placement depends on
/// sizes alone, and a slot gets exactly the fences of the bytes that it overlaps.
///
/// Threads: confined; the arena holds its lock.
class FreeRanges {
 public:
  /// A free range and the piece around it. Ranges of different pieces never merge: one copy must
  /// not cross two registrations.
  void add(std::byte* at, Bytes size, std::byte* piece, driver::FenceSet fences);

  /// A place with the fences that cover it. Best fit: the smallest range that is large enough, the
  /// lowest among equals.
  struct Place {
    std::byte* at;
    driver::FenceSet fences;
  };

  std::optional<Place> take(Bytes size);

  /// Forgets a free range that is a whole piece. Returns false, and changes nothing, where part of
  /// it is not free or is still fenced.
  bool remove_piece(std::byte* piece, Bytes size);

  /// Free bytes with a fence that has not been seen to pass.
  [[nodiscard]] Bytes fenced() const { return fenced_; }

  /// Looks at the fences; no host wait.
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

  // Made on threads that pack and ended on threads that unpack.
  template <typename Value>
  using ByAddress =
      std::map<std::byte*, Value, std::less<>, PoolAllocator<std::pair<std::byte* const, Value>>>;
  using Sized = std::pair<Bytes, std::byte*>;

  std::vector<Sized>::iterator sized(const Sized& range);
  void erase(ByAddress<Range>::iterator range);
  void resize(ByAddress<Range>::iterator range, Bytes size);
  ByAddress<Fenced>::iterator fenced_from(std::byte* at);
  driver::FenceSet take_fences(std::byte* at, Bytes size);

  // By their ends, which stay where a slot is taken from a range's front or released before it.
  ByAddress<Range> ranges_;
  std::vector<Sized> by_size_;  // sizes and ends, in order; a handful, because neighbours merge
  ByAddress<Fenced> fences_;    // by their begins; disjoint, inside free ranges
  Bytes fenced_;
};

}  // namespace spillway
