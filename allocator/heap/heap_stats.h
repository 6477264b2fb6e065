// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/ids.h"
#include "allocator/driver/handles.h"

#include <cstdint>
#include <vector>

namespace spillway {

struct HeapStats {
  Bytes allocated;  // allocated bytes, rounded; includes evicted blocks
  Bytes requested;  // allocated bytes, as requested
  Bytes reserved;   // physical bytes allocated from the driver
  Bytes allocated_peak;
  Bytes requested_peak;
  Bytes reserved_peak;
  Bytes offloaded_at_allocated_peak;
  Bytes offloaded_at_reserved_peak;
  // part of allocated: evicted blocks; their memory is released unless another block shares the
  // chunk (evict)
  Bytes evicted;
  Bytes cached;  // part of reserved: free
  // Members marked "waste" count memory that the program cannot use.
  Bytes rounding;  // waste: allocated - requested
  // waste: free bytes in chunks that also contain an allocated block
  Bytes stranded;
  std::uint64_t stranded_blocks = 0;  // number of free blocks with such bytes
  Bytes pending;                      // waste: free, with a fence that has not been seen to pass
  Bytes allocated_total;              // cumulative, rounded
  Bytes requested_total;              // cumulative, as requested
  Bytes reserved_total;               // cumulative bytes reserved from the driver
  std::uint64_t allocations = 0;      // since creation
  std::uint64_t frees = 0;
  std::uint64_t allocated_blocks = 0;
  std::uint64_t allocated_blocks_peak = 0;
  std::uint64_t driver_allocations = 0;  // chunks created since creation of the heap
  std::uint64_t driver_releases = 0;
  std::uint64_t fence_waits =
      0;  // stream waits for blocks that were reused before their fences passed
  std::uint64_t out_of_memory = 0;  // failed calls of allocate()
  // calls of free() with an address at which no allocated block starts
  std::uint64_t bad_frees = 0;
  std::uint64_t over_budget = 0;           // allocations that exceeded the budget (exceed_budget)
  std::uint64_t replayed_allocations = 0;  // of the allocations: at addresses of a replay plan
  std::uint64_t replay_mismatches = 0;     // steps that diverged from the replay plan
};

/// Totals of one tag's allocated blocks.
struct HeapTagInfo {
  TagId tag = TagId::kUntagged;
  Bytes allocated;       // rounded; includes evicted blocks
  Bytes requested;       // as requested
  Bytes evicted;         // part of allocated
  Bytes allocated_peak;  // since creation or reset_peaks()
  std::uint64_t blocks = 0;
};

/// One block of a snapshot.
struct HeapBlockInfo {
  driver::DevicePtr at;
  Bytes size;       // rounded
  Bytes requested;  // zero if free
  bool allocated = false;
  bool fenced = false;
  bool evicted = false;
  TagId tag = TagId::kUntagged;
  PoolId pool = PoolId::kShared;
  CUstream stream = nullptr;
  bool shared = false;  // exported to other processes
  bool apart = false;   // not among large blocks of any use (PlacementAdvisor::set_streaming)
};

/// A contiguous range of addresses of one stream. It has memory or evicted blocks.
struct HeapSegmentInfo {
  driver::DevicePtr at;
  Bytes size;
  CUstream stream = nullptr;
  PoolId pool = PoolId::kShared;
  std::vector<HeapBlockInfo> blocks;  // in address order; they cover the segment
};

}  // namespace spillway
