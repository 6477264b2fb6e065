// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/free_ranges.h"

#include <cuda.h>

#include <algorithm>
#include <array>

namespace spillway::emulator {

/// An amount and its peak.
struct Tally {
  std::size_t now = 0;
  std::size_t peak = 0;

  void add(std::size_t bytes) {
    now += bytes;
    peak = std::max(peak, now);
  }

  void remove(std::size_t bytes) { now -= bytes; }
};

/// The source of blocks: a pool of stream-ordered memory, or that of cudaMalloc. Its small blocks
/// share pages only with each other.
struct Pool {
  int device = 0;
  bool by_default = false;                    // the device's own, which cannot be destroyed
  bool destroyed = false;                     // by the program; its last block ends it
  std::size_t most = 0;                       // limit of reserved bytes, 0 for the device's memory
  Tally used;                                 // bytes of blocks, in units of 512
  Tally reserved;                             // bytes of whole pages
  FreeRanges free;                            // of pages with small blocks
  std::array<CUmemAccess_flags, 8> access{};  // of other devices
  std::array<int, 3> rules{1, 1, 1};          // of reuse, kept without effect
  cuuint64_t threshold = 0;                   // likewise
};

}  // namespace spillway::emulator
