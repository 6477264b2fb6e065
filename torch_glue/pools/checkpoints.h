// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"
#include "allocator/base/mutex.h"

#include <c10/cuda/CUDACachingAllocator.h>

#include <atomic>
#include <map>
#include <memory>
#include <set>
#include <vector>

namespace spillway {

class Checkpoints;

/// The allocated blocks of a graph pool at one moment.
struct PoolCheckpoint final : c10::cuda::CUDACachingAllocator::AllocatorState {
  PoolCheckpoint(Checkpoints& table, PoolId in, std::set<void*> blocks)
      : pool(in), live(std::move(blocks)), table_(table) {}

  ~PoolCheckpoint() override;
  PoolCheckpoint(const PoolCheckpoint&) = delete;
  PoolCheckpoint& operator=(const PoolCheckpoint&) = delete;

  const PoolId pool;
  const std::set<void*> live;

 private:
  Checkpoints& table_;
};

/// The checkpoints of graph pools that torch.compile's graph trees return to. A block that was
/// allocated at a checkpoint is parked when it is freed, while the checkpoint exists. It is not
/// reused, so that it can be reallocated at the same address.
///
/// Threads: safe. Ownership: outlives its checkpoints.
class Checkpoints {
 public:
  using Free = void (*)(void* block);

  /// `free` returns an unreferenced block to the heap; called without a lock.
  explicit Checkpoints(Free free) : free_(free) {}

  [[nodiscard]] bool any() const { return count_.load(std::memory_order_relaxed) > 0; }

  std::shared_ptr<PoolCheckpoint> make(PoolId pool, std::set<void*> live);
  /// Parks the block if a checkpoint of the pool contains it. If true, the block must not be freed
  /// now.
  bool park(PoolId pool, void* block);
  /// Reallocates the block if it was parked; returns whether it was.
  bool unpark(PoolId pool, void* block);
  [[nodiscard]] bool is_parked(PoolId pool, void* block) const;

 private:
  friend struct PoolCheckpoint;

  struct OfPool {
    std::set<const PoolCheckpoint*> checkpoints;
    std::set<void*> parked;

    [[nodiscard]] bool wants(void* block) const;
  };

  void gone(const PoolCheckpoint& checkpoint);

  const Free free_;
  std::atomic<size_t> count_{0};
  mutable Mutex mutex_;
  std::map<PoolId, OfPool> pools_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
