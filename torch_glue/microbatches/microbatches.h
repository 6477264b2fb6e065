// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "torch_glue/microbatches/order.h"
#include "torch_glue/saved_tensors/region_stack.h"

#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace spillway {

/// Micro-batches that wait for their backward pass on the host. What a unit saves leaves as it is
/// saved; it is fetched when the backward pass is as many units offloaded as the horizon says.
///
/// Threads: safe. Ownership: the regions and graphs of its micro-batches own it together.
class Microbatches : public std::enable_shared_from_this<Microbatches> {
 public:
  struct Stats {
    std::uint64_t units = 0;       // that have left, since creation
    std::uint64_t units_kept = 0;  // whose backward pass was too near for it
    std::uint64_t ahead = 0;       // units whose copy back was begun ahead of their backward pass
    std::size_t batches = 0;       // in this step so far
    std::size_t straight_batches = 0;  // of those: went on to their backward pass at once, and stay
    Bytes largest_unit;                // that has left
  };

  /// `horizon`: at least 1.
  Microbatches(TagId tag, std::size_t horizon);
  ~Microbatches();
  Microbatches(const Microbatches&) = delete;
  Microbatches& operator=(const Microbatches&) = delete;

  /// A training step begins: micro-batches are counted again, and expected in the order of the one
  /// before. Graphs of earlier steps stay usable; what they need is fetched when they ask for it.
  void begin_step();
  /// The step's forward passes are over. Its backward passes may still run.
  void end_step();
  /// Whether a step has begun and not ended.
  [[nodiscard]] bool in_step() const;
  /// The forward pass of the next micro-batch begins on this thread; leave_region() ends it.
  /// Errors: as enter_region().
  Result<std::uint64_t> enter();
  /// Holds from the next unit on that runs.
  void set_horizon(std::size_t horizon);

  [[nodiscard]] Stats stats() const;

 private:
  class Batch;
  class Unit;
  class Handle;

  void begin(const std::shared_ptr<Unit>& unit);
  void left(Unit& unit, const std::shared_ptr<SavedStorage>& storage, std::size_t size);
  void used(Unit& unit);
  void fetch(const std::vector<UnitKey>& soon);

  const RegionOptions options_;
  mutable Mutex mutex_;
  std::size_t horizon_ SPILLWAY_GUARDED_BY(mutex_);
  std::uint64_t step_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  bool in_step_ SPILLWAY_GUARDED_BY(mutex_) = false;
  std::uint32_t next_batch_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  UnitOrder order_ SPILLWAY_GUARDED_BY(mutex_);
  std::map<UnitKey, std::weak_ptr<Unit>> units_ SPILLWAY_GUARDED_BY(mutex_);  // of this step
  std::optional<UnitKey> running_ SPILLWAY_GUARDED_BY(mutex_);                // its backward pass
  Stats stats_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
