// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/range.h"

#include <cuda.h>

#include <map>
#include <optional>

namespace spillway::emulator {

/// Page-locked host memory: allocated here or registered by the program.
/// Threads: under the machine's lock.
class HostMemory {
 public:
  /// Errors: CUDA_ERROR_INVALID_VALUE for zero bytes, CUDA_ERROR_OUT_OF_MEMORY.
  CUresult allocate(std::size_t bytes, void** at);
  /// Errors: CUDA_ERROR_INVALID_VALUE for an address that is not from `allocate`.
  CUresult free(void* at, Range* freed);

  /// Errors: CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED if any byte is already page-locked.
  CUresult add(Range range);
  /// Errors: CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED.
  CUresult remove(void* at, Range* removed);

  /// Whether all of `range` is in one piece: a copy across two registrations is an error.
  [[nodiscard]] bool holds(Range range) const;
  [[nodiscard]] bool overlaps(Range range) const;
  /// The piece that contains all of `range`.
  [[nodiscard]] std::optional<Range> piece_of(Range range) const;

  /// Peak of the page-locked bytes.
  [[nodiscard]] std::size_t peak() const { return peak_; }

  /// The adjacent pieces that contain `range`: a kernel may cross from one into the next.
  [[nodiscard]] std::optional<Range> around(Range range) const;

 private:
  struct Piece {
    Range range;
    bool allocated;
  };

  void insert(Piece piece);
  void erase(std::map<std::uintptr_t, Piece>::iterator piece);

  std::map<std::uintptr_t, Piece> pieces_;
  std::size_t bytes_ = 0;
  std::size_t peak_ = 0;
};

}  // namespace spillway::emulator
