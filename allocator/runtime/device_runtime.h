// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/base/result.h"
#include "allocator/heap/heap.h"
#include "allocator/lifetime/allocation_curve.h"
#include "allocator/plan/budget.h"
#include "allocator/residency/pause.h"
#include "allocator/residency/residency.h"
#include "allocator/runtime/evictable.h"
#include "allocator/runtime/step_peaks.h"
#include "allocator/runtime/step_recording.h"
#include "allocator/sharing/exports.h"
#include "allocator/sharing/imports.h"
#include "allocator/transfer/copy_engine.h"
#include "allocator/transfer/host_arena.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace spillway {

struct RuntimeOptions {
  Bytes pinned_limit;     // most pinned host bytes per device; zero: none. SPILLWAY_PINNED_LIMIT
  Bytes min_bytes{1024};  // smaller storages stay on the device
  /// Most pinned host bytes of all processes of this machine that share a ledger; zero: none.
  /// SPILLWAY_NODE_PINNED_LIMIT
  Bytes node_pinned_limit{};
  std::string ledger = "/dev/shm";  // the folder of that ledger
  /// Steps that repeat get the same addresses (Heap::end_step). SPILLWAY_PLAN_REPLAY
  bool plan_replay = false;
  /// Most bytes that each device's heap may hold; zero: what the device has. SPILLWAY_MEMORY_LIMIT
  Bytes memory_limit{};
  /// Reads SPILLWAY_*. Errors: kInvalidArgument naming variable, value and what is allowed.
  static Result<RuntimeOptions> from_environment();
};

/// While one lives, an allocation of this thread that the device, or the budget, has no room for
/// fails at once: a prefetch is not worth offloading anything else. Threads: confined.
class OptionalAllocation {
 public:
  OptionalAllocation() : outer_(std::exchange(open(), true)) {}

  ~OptionalAllocation() { open() = outer_; }

  OptionalAllocation(const OptionalAllocation&) = delete;
  OptionalAllocation& operator=(const OptionalAllocation&) = delete;

  static bool on() { return open(); }

 private:
  static bool& open();

  const bool outer_;
};

/// One of each stage for one device, in stage order.
/// Threads: safe. Ownership: owns its stages; later ones borrow earlier ones; borrows `evictable`.
class DeviceRuntime {
 public:
  /// Errors: kDriver, kOutOfDeviceMemory; kInvalidArgument where the node's ledger cannot be
  /// trusted.
  static Result<std::unique_ptr<DeviceRuntime>> create(const driver::Device& device,
                                                       const RuntimeOptions& options,
                                                       Evictable& evictable);

  /// For tests. Requires: nothing allocated from the heap lives, and no stash.
  ~DeviceRuntime();
  DeviceRuntime(const DeviceRuntime&) = delete;
  DeviceRuntime& operator=(const DeviceRuntime&) = delete;

  /// A block of the heap under this thread's tag: the one way in for the code that hands memory to
  /// programs. As Heap::allocate. Where the device, or the heap's budget, has no room, the
  /// reclaimer offloads what it can; then the heap exceeds its budget, or, where it is the device
  /// that has no memory, tags that may be paused (Evictable) are, and then it is tried again.
  /// `pool` kShared: this thread's PoolScope, if any. Stream: no host wait except where the device
  /// has no memory. Errors: kOutOfDeviceMemory, whose text says who holds what and which tag's
  /// pause would have made room; then nothing is paused that was not before.
  Result<driver::DevicePtr> allocate(Bytes size,
                                     driver::Stream stream,
                                     PoolId pool = PoolId::kShared);

  /// Offloads storages of the device until some `wanted` bytes of it are free in stream order, as
  /// far as it can, and returns how many are. Called where an allocation has no room, with whatever
  /// locks its thread holds: it waits for none of them.
  using Reclaimer = Bytes (*)(DeviceRuntime& device, Bytes wanted);
  /// For all devices; null for none.
  static void set_reclaimer(Reclaimer reclaimer);

  /// What the reclaimer has freed since the last call.
  Bytes take_reclaimed() { return Bytes{reclaimed_.exchange(0)}; }

  /// Releases what allocate gave, with its host copy where it is paused; other processes cannot
  /// open it any more. As Heap::free.
  bool free(driver::DevicePtr at);

  /// The live block around `at` is also used by work on `stream`, as Heap::record_use. Errors:
  /// kInvalidArgument for what is no stream and where no live block is there; kDriver.
  Status record_use(driver::DevicePtr at, driver::Stream stream);

  /// The live block around `at` is for `role` from now on, unless a scope that the program opened
  /// has named it.
  void set_role(driver::DevicePtr at, TagId role);

  /// Limits of what the heap holds from the driver; of kFraction and kAbsolute the smaller counts.
  ///   kFraction: as PyTorch's per-process fraction has it. kAbsolute: the caller's own. kSoft:
  ///   beyond it cached memory is released before the heap grows, and then it grows.
  enum class Limit { kFraction, kAbsolute, kSoft };
  /// Sets one of them; zero removes it. Where more is held, cached memory goes back now; what lives
  /// stays, and what cannot grow any more is out of memory at its next growth.
  /// Stream: blocks the host where memory goes back. Errors: kInvalidArgument for more than the
  /// device has; kDriver. Nothing has changed then.
  Status set_limit(Limit which, Bytes limit);
  /// Zero where there is none.
  [[nodiscard]] Bytes limit(Limit which) const;

  /// Starts recording this device's storages (LifetimeRecorder::start), into a trace at `path`
  /// unless that is empty. Errors: as there; kDriver.
  Status start_recording(const std::string& path, std::size_t most);

  /// `why`, which says that `size` bytes could not be had, with who holds what and which tag's
  /// pause would have made room.
  [[nodiscard]] Status oom_status(Bytes size, const Status& why);

  /// PauseManager tags that may be, until the device can give `size` more bytes or nothing is left
  /// to pause; their names. Requires: the caller's turn (Evictable::turn). Stream: blocks the host.
  /// Errors: kOutOfDeviceMemory where they do not hold enough; nothing is paused then.
  Result<std::vector<TagId>> evict_for(Bytes size);

  Heap& heap() { return *heap_; }

  HostArena& arena() { return *arena_; }

  CopyEngine& copies() { return *copies_; }

  Residency& residency() { return *residency_; }

  PauseManager& pauses() { return *pauses_; }

  /// What this device holds in the running step of a region with a budget. Blocks of the heap
  /// report to it by themselves.
  AllocationCurve& curve() { return curve_; }

  /// Its peaks by phase of a step. Blocks of the heap report to it by themselves.
  StepPeaks& step_peaks() { return step_peaks_; }

  /// What such a step costs, where a plan is to be made from it.
  StepRecording& step_recording() { return step_recording_; }

  /// The running or last step of a region with a budget.
  struct BudgetStep {
    std::uint64_t number = 0;  // the process' first step is 1
    std::string shape;         // of the first tensor that it saved, as "[8, 1024]"
  };

  void set_budget_step(BudgetStep step);
  [[nodiscard]] BudgetStep budget_step() const;

  /// What the device has in all, and for this process, for budgets that are a share of it: asked
  /// for once, before the first step of such a budget.
  void offer(driver::MemoryInfo room) {
    total_ = room.total.count();
    available_ = room.free.count();
  }

  [[nodiscard]] bool offered() const { return total_ != 0; }

  /// What a step with that budget may need. Requires: a budget in bytes, or offered().
  [[nodiscard]] Bytes most(const Budget& budget) const {
    return budget.on(Bytes{total_}, Bytes{available_});
  }

  /// Memory of this process for others, and theirs for this one.
  Exports& exports() { return *exports_; }

  Imports& imports() { return *imports_; }

  /// Lets `peer` read and write all memory of this device, now and in future. Errors: as
  /// Heap::enable_peer.
  Status enable_peer(DeviceId peer);

  [[nodiscard]] const driver::Device& device() const { return device_; }

 private:
  DeviceRuntime(const driver::Device& device, Evictable& evictable)
      : device_(device), evictable_(evictable) {}

  Result<driver::DevicePtr> allocate_under_pressure(Bytes size, driver::Stream stream, PoolId pool);
  Result<driver::DevicePtr> allocate_by_eviction(Bytes size, driver::Stream stream, PoolId pool);
  /// What the driver lacks to give `size` more bytes.
  [[nodiscard]] Bytes missing(Bytes size) const;
  [[nodiscard]] std::string advice(Bytes missing) const;

  const driver::Device device_;
  Evictable& evictable_;
  std::atomic<std::uint64_t> offloaded_{0};
  std::atomic<std::uint64_t> total_{0};
  std::atomic<std::uint64_t> available_{0};
  std::atomic<std::uint64_t> reclaimed_{0};
  AllocationCurve curve_;
  StepPeaks step_peaks_;
  StepRecording step_recording_{device_, curve_};
  mutable Mutex limits_mutex_;
  BudgetStep budget_step_ SPILLWAY_GUARDED_BY(limits_mutex_);
  std::array<Bytes, 3> limits_ SPILLWAY_GUARDED_BY(limits_mutex_){};
  std::unique_ptr<Heap> heap_;
  std::unique_ptr<HostArena> arena_;
  std::unique_ptr<CopyEngine> copies_;
  std::unique_ptr<Residency> residency_;
  std::unique_ptr<PauseManager> pauses_;
  std::unique_ptr<Exports> exports_;
  std::unique_ptr<Imports> imports_;
};

}  // namespace spillway
