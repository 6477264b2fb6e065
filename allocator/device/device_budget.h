// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/bytes.h"
#include "allocator/base/mutex.h"
#include "allocator/base/result.h"
#include "allocator/device/pass_pace.h"
#include "allocator/driver/handles.h"
#include "allocator/heap/heap.h"
#include "allocator/plan/budget.h"

#include <atomic>
#include <cstdint>
#include <string>

namespace spillway {

/// Converts budgets to bytes of a device, and holds one for the whole process.
/// Threads: safe. Ownership: borrows the device's heap.
class DeviceBudget {
 public:
  DeviceBudget(const driver::Device& device, Heap& heap) : device_(device), heap_(heap) {}

  /// Learns the device's total memory, and what this process can use of it: the free memory and the
  /// `reserved` bytes of its own. For budgets that are a share, once, before the first step with
  /// one. Errors: kDriver.
  Status learn_memory(Bytes reserved);

  [[nodiscard]] bool has_memory() const { return total_ != 0; }

  /// The budget in bytes. Requires: it is in bytes, or has_memory().
  [[nodiscard]] Bytes bytes_of(const Budget& budget) const {
    return budget.on(Bytes{total_}, Bytes{available_});
  }

  /// Likewise, for HeapLimits::set_budget: zero if it is below HeapLimits::smallest_budget().
  [[nodiscard]] Bytes heap_bytes_of(const Budget& budget) const;

  /// Caps the heap's reserved bytes by the budget, for the whole process (HeapLimits::hold_budget).
  /// Errors: kDriver, if it is a share of the device's memory.
  Status hold(const Budget& budget);

  /// The one that is held, in bytes; zero if there is none.
  [[nodiscard]] Bytes of_job() const { return Bytes{of_job_}; }

  /// The running or last step of a region with a budget.
  struct Step {
    std::uint64_t number = 0;       // the process's first step is 1
    std::string first_saved_shape;  // shape of the first tensor that it saved, as "[8, 1024]"
  };

  void set_step(Step step);
  [[nodiscard]] Step step() const;

  /// Set when a step of a region with a budget begins, from those before.
  PassPace& pace() { return pace_; }

 private:
  const driver::Device device_;
  Heap& heap_;
  std::atomic<std::uint64_t> total_{0};
  std::atomic<std::uint64_t> available_{0};
  std::atomic<std::uint64_t> of_job_{0};
  PassPace pace_;
  mutable Mutex mutex_;
  Step step_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
