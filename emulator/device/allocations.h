// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/capacity.h"
#include "emulator/device/range.h"

#include <cuda.h>

#include <array>
#include <map>
#include <optional>
#include <vector>

namespace spillway::emulator {

/// Device memory as cudaMalloc and cudaMallocAsync give it: address and physical memory in one.
/// Each block is a host mapping of its own, so that touching freed memory faults unless the address
/// has been given to somebody else since.
/// Threads: under the machine's lock. Ownership: borrows `capacity`.
class Allocations {
 public:
  struct Block {
    Range range;
    std::size_t charged;
    int device;
    bool pooled;
    bool freeing = false;  // a stream-ordered free is on its way
  };

  Allocations(Capacity& capacity, int devices)
      : capacity_(capacity), pools_(static_cast<std::size_t>(devices)) {}

  /// Zero bytes give the null address. Errors: CUDA_ERROR_OUT_OF_MEMORY.
  CUresult allocate(int device, std::size_t bytes, bool pooled, CUdeviceptr* at);

  /// The living block that begins at `at`, null where there is none.
  Block* find(CUdeviceptr at);
  /// Requires: `at` begins a block.
  void free(CUdeviceptr at);

  /// The block that holds all of `range`.
  [[nodiscard]] const Block* holding(Range range) const;
  [[nodiscard]] bool overlaps(Range range) const;

  struct Pool {
    std::size_t used = 0;
    std::size_t peak = 0;
    std::array<CUmemAccess_flags, 8> access{};  // of other devices
  };

  Pool& pool(int device) { return pools_[static_cast<std::size_t>(device)]; }

  /// Whether the block's pool lets `device` access it. Requires: a pooled block.
  [[nodiscard]] bool pool_allows(const Block& block, int device, bool write) const;

 private:
  Capacity& capacity_;
  std::map<std::uintptr_t, Block> blocks_;
  std::vector<Pool> pools_;
};

}  // namespace spillway::emulator
