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

class SavedStorage;

/// Micro-batches whose saved tensors wait on the host for their backward pass. Each unit is
/// offloaded as its tensors are saved. It is fetched when its backward pass is within the horizon,
/// counted in units.
///
/// Threads: safe. Ownership: shared by the regions and graphs of its micro-batches.
class Microbatches : public std::enable_shared_from_this<Microbatches> {
 public:
  struct Stats {
    std::uint64_t units = 0;           // offloaded, since creation
    std::uint64_t units_kept = 0;      // kept because their backward pass was near
    std::uint64_t ahead = 0;           // units whose fetch began ahead of their backward pass
    std::size_t batches = 0;           // in this step so far
    std::size_t straight_batches = 0;  // continued directly to their backward pass, and were kept
    Bytes largest_unit;                // offloaded
  };

  /// `horizon`: at least 1.
  Microbatches(TagId tag, std::size_t horizon);
  ~Microbatches();
  Microbatches(const Microbatches&) = delete;
  Microbatches& operator=(const Microbatches&) = delete;

  /// Begins a training step. Micro-batches are counted from zero, and expected in the order of the
  /// previous step. Graphs of earlier steps remain usable; their tensors are fetched on demand.
  void begin_step();
  /// Ends the forward passes of the step; backward passes may still run.
  void end_step();
  /// Whether a step has begun and not ended.
  [[nodiscard]] bool in_step() const;
  /// Begins the forward pass of the next micro-batch on this thread; leave_region() ends it.
  /// Errors: as enter_region().
  Result<std::uint64_t> enter();
  /// Takes effect with the next unit that runs.
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
  // the unit whose backward pass runs
  std::optional<UnitKey> running_ SPILLWAY_GUARDED_BY(mutex_);
  Stats stats_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
