// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "emulator/device/addresses.h"
#include "emulator/device/capacity.h"
#include "emulator/device/memory_file.h"
#include "emulator/device/pool.h"
#include "emulator/device/range.h"
#include "emulator/device/ticket.h"

#include <cuda.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace spillway::emulator {

/// Device memory of cudaMalloc and cudaMallocAsync: address and physical memory in one.
///
/// A block below 1 MiB shares pages of 2 MiB with others, as on a GPU, and begins at a multiple of
/// 512 bytes. An access to freed memory faults from the time when its whole page is free until the
/// address is reused.
///
/// Threads: under the machine's lock. Ownership: borrows `capacity` and `files` (one per device).
class Allocations {
 public:
  struct Block {
    Range range;        // in units of 512 bytes
    std::size_t asked;  // bytes requested by the program
    int device;
    Pool* pool;            // null: memory of another process
    bool pooled;           // stream-ordered
    bool freeing = false;  // a stream-ordered free is queued
    int opened = 0;        // number of opens, for memory of another process
  };

  Allocations(Capacity& capacity, std::deque<MemoryFile>& files, bool poison);

  /// cudaMalloc. Zero bytes give the null address. Errors: CUDA_ERROR_OUT_OF_MEMORY.
  CUresult allocate(int device, std::size_t bytes, CUdeviceptr* at);
  /// Allocates from a pool, without stream order. Errors: as above.
  CUresult allocate(Pool& pool, std::size_t bytes, CUdeviceptr* at);

  /// The allocated block that begins at `at`; null if there is none.
  Block* find(CUdeviceptr at);
  /// Requires: `at` begins a block that does not belong to another process.
  void free(CUdeviceptr at);

  /// The block that contains all of `range`.
  [[nodiscard]] const Block* holding(Range range) const;
  [[nodiscard]] bool overlaps(Range range) const;

  /// The block of another process that `ticket` names and `file` contains.
  /// Errors: CUDA_ERROR_MAP_FAILED.
  CUresult import(const Ticket& ticket, int file, CUdeviceptr* at);
  /// Its address if it is already mapped; counts as another open.
  std::optional<CUdeviceptr> open_again(const Ticket& ticket);
  /// Requires: `at` begins a block of another process.
  void forget_import(CUdeviceptr at);

  Pool& default_pool(int device) { return *pools_[static_cast<std::size_t>(device)]; }

  /// The pool of cudaMallocAsync.
  Pool& current_pool(int device) { return *current_[static_cast<std::size_t>(device)]; }

  void use_pool(Pool& pool) { current_[static_cast<std::size_t>(pool.device)] = &pool; }

  Pool& create_pool(int device, std::size_t most);
  /// Null if the program has no such pool.
  Pool* find_pool(const void* handle);
  /// Requires: not a default pool. Its blocks stay allocated. If it is current, the default pool
  /// becomes current.
  void destroy_pool(Pool& pool);

  /// Whether the block's pool lets `device` access it. Requires: a pooled block.
  static bool pool_allows(const Block& block, int device, bool write);

 private:
  std::optional<Range> take_small(Pool& pool, std::size_t bytes);
  /// Whole pages, accessible.
  std::optional<Range> take_pages(Pool& pool, std::size_t bytes);
  void give_small(Pool& pool, Range range);
  void give_pages(Pool& pool, Range range);
  CUresult take(Pool& pool, std::size_t bytes, bool pooled, CUdeviceptr* at);

  MemoryFile& file(int device) { return files_[static_cast<std::size_t>(device)]; }

  Addresses& addresses(int device) { return addresses_[static_cast<std::size_t>(device)]; }

  Capacity& capacity_;
  std::deque<MemoryFile>& files_;
  const bool poison_;
  // by device, so that the blocks of one device are adjacent
  std::deque<Addresses> addresses_;
  std::deque<Pool> plain_;                    // cudaMalloc's, by device
  std::vector<std::unique_ptr<Pool>> pools_;  // by device; the default pools first
  std::vector<Pool*> current_;                // by device
  std::map<std::uintptr_t, Block> blocks_;
  std::map<CUdeviceptr, Ticket> imports_;
};

}  // namespace spillway::emulator
