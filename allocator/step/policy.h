// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/ids.h"
#include "allocator/device/device_runtime.h"
#include "allocator/plan/budget_shortage.h"
#include "allocator/plan/plan_request.h"
#include "allocator/step/step_stats.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace spillway {

/// One storage that autograd saves and that can be offloaded.
struct OfferedStorage {
  DeviceRuntime& device;
  Bytes size;
  std::optional<std::uint64_t> node{};  // as RatioChooser::choose
  bool recomputable = false;
  bool cannot_help = false;  // offloading does not lower the peak: it stays while there is room
};

/// What happens with one storage that autograd saves.
struct StorageDecision {
  bool offload = false;
  bool recompute = false;  // it is released and recomputed later
  bool waits = false;      // it may have to be offloaded later in the step
  bool known = true;       // the step matches a planned one so far
  bool recording = false;  // the step's times are needed for a plan
};

/// A policy's answer for one storage.
struct PolicyDecision {
  StorageDecision action{};
  bool watched = false;               // it reports to the device's curve
  bool referenced_elsewhere = false;  // it stays because it was referenced elsewhere
  std::size_t index = 0;              // of the storage in its step
  std::vector<std::size_t> due{};     // storages that have waited and must be offloaded now
};

/// What a step has learned about one of its storages.
enum class StorageEvent : std::uint8_t {
  kNoHostMemory,        // there was no host memory for it: it stays
  kEndedBeforeOffload,  // it was released or used before it was offloaded, so it stayed on the
                        // device
  kAliveAtUnpack,       // it was still allocated at its unpack, so it is referenced elsewhere
  kUnreferenced,        // it had no other reference at its unpack, although it was kept for one
};

/// A step that exceeded its budget.
struct BudgetMiss {
  DeviceId device{};
  Bytes budget;
  BudgetShortage shortage;
  std::uint64_t step = 0;         // the first step is 1
  std::string first_saved_shape;  // shape of the first saved tensor
  bool warns = false;             // it is a warning, not an error
  /// Later steps may meet the budget: this step still kept storages, or exceeded it by
  /// fragmentation only. shortage.least is then the bytes that this step needed.
  bool adapts = false;
  /// No optimizer step had ended before it. No step has shown the optimizer states yet.
  bool first = false;
};

/// Decides what happens with the storages that a tag's steps save. A StepSession owns one per tag,
/// and calls it under its lock, so a policy must not call the session.
class OffloadPolicy {
 public:
  OffloadPolicy() = default;
  virtual ~OffloadPolicy() = default;
  OffloadPolicy(const OffloadPolicy&) = delete;
  OffloadPolicy& operator=(const OffloadPolicy&) = delete;

  /// Returns the plans to make before on_saved() of this storage. Called under the lock; the caller
  /// makes them without it.
  virtual std::vector<PlanRequest> plans_for(const OfferedStorage&) { return {}; }

  /// Takes plans that were made. Those that are outdated are ignored.
  virtual void adopt(DeviceId, std::vector<PlanRequest>&&) {}

  /// The action for the step's next storage; counts it in `step`.
  virtual PolicyDecision on_saved(const OfferedStorage& storage, TagStepStats& step) = 0;
  virtual void on_event(StorageEvent event, DeviceId device, std::size_t index) = 0;
  /// The first use of a storage in the backward pass. `last_saved`: the storage of this tag that
  /// was saved last, if nothing has been saved or used since. Returns true if the node
  /// that saved `last_saved` also makes this use.
  virtual bool on_first_use(std::size_t index, std::optional<std::size_t> last_saved) = 0;

  /// The storages whose fetch begins at the first use of that one.
  [[nodiscard]] virtual std::vector<std::size_t> prefetch_after(DeviceId, std::size_t) const {
    return {};
  }

  /// The backward pass is over and an optimizer step may follow. Returns the budgets that were
  /// missed by then.
  virtual std::vector<BudgetMiss> on_backward_end() { return {}; }

  /// The step is over. `had_backward`: it had a backward pass. `optimized`: and an optimizer step.
  /// Returns the missed budgets.
  virtual std::vector<BudgetMiss> on_end(bool had_backward, bool optimized) = 0;

  /// Steps that began like a known one and diverged.
  [[nodiscard]] virtual std::uint64_t mismatches() const = 0;
};

}  // namespace spillway
