// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/result.h"
#include "allocator/device/device_budget.h"
#include "allocator/device/device_limits.h"
#include "allocator/device/evictable.h"
#include "allocator/device/model_state_share.h"
#include "allocator/device/step_peaks.h"
#include "allocator/device/step_recording.h"
#include "allocator/heap/heap.h"
#include "allocator/lifetime/allocation_curve.h"
#include "allocator/plan/budget.h"
#include "allocator/residency/pause.h"
#include "allocator/residency/residency.h"
#include "allocator/sharing/exports.h"
#include "allocator/sharing/imports.h"
#include "allocator/transfer/copy_engine.h"
#include "allocator/transfer/host_arena.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace spillway {

struct RuntimeOptions {
  Bytes pinned_limit;     // maximum pinned host bytes per device; zero: none. SPILLWAY_PINNED_LIMIT
  Bytes min_bytes{1024};  // smaller storages are not offloaded
  /// Maximum pinned host bytes of all processes of one user on a machine that set
  /// SPILLWAY_NODE_PINNED_LIMIT, together; zero: none.
  Bytes node_pinned_limit{};
  std::string ledger = "/dev/shm";  // directory of the file that counts these bytes (NodeLedger)
  /// Plans the addresses of repeating steps (Heap::end_step). SPILLWAY_PLAN_REPLAY
  bool plan_replay = false;
  /// Maximum bytes reserved by each device's heap; zero: limited by the device.
  /// SPILLWAY_MEMORY_LIMIT
  Bytes memory_limit{};
  /// Reads SPILLWAY_*.
  /// Errors: kInvalidArgument with the variable, its value and the allowed values.
  static Result<RuntimeOptions> from_environment();
};

/// Marks an optional allocation, such as a prefetch. During its lifetime, an allocation of this
/// thread that exceeds the device or the budget fails at once and offloads nothing.
/// Threads: confined.
class OptionalAllocation {
 public:
  OptionalAllocation() : outer_(std::exchange(open(), true)) {}

  ~OptionalAllocation() { open() = outer_; }

  OptionalAllocation(const OptionalAllocation&) = delete;
  OptionalAllocation& operator=(const OptionalAllocation&) = delete;

  static bool active() { return open(); }

 private:
  static bool& open();

  const bool outer_;
};

/// During its lifetime, blocks that this thread allocates and frees hold model state. Those that it
/// frees to make room do not. `holds`: false ends it for the lifetime.
/// Threads: confined.
class ModelStateBlocks {
 public:
  explicit ModelStateBlocks(bool holds = true) : outer_(std::exchange(open(), holds)) {}

  ~ModelStateBlocks() { open() = outer_; }

  ModelStateBlocks(const ModelStateBlocks&) = delete;
  ModelStateBlocks& operator=(const ModelStateBlocks&) = delete;

  static bool active() { return open(); }

  /// Of the blocks that this thread allocates.
  static BlockUse use() { return active() ? BlockUse::kStreamed : BlockUse::kAny; }

 private:
  static bool& open();

  const bool outer_;
};

/// One instance of each stage for one device, in stage order.
/// Threads: safe.
/// Ownership: owns its stages, of which later ones borrow earlier ones; borrows `evictable`.
class DeviceRuntime {
 public:
  /// Errors: kDriver, kOutOfDeviceMemory; kInvalidArgument if the node's ledger is not trustworthy
  /// or the memory limit exceeds the device's memory.
  static Result<std::unique_ptr<DeviceRuntime>> create(const driver::Device& device,
                                                       const RuntimeOptions& options,
                                                       Evictable& evictable);

  /// For tests. Requires: no block of the heap is allocated, and there is no stash.
  ~DeviceRuntime();
  DeviceRuntime(const DeviceRuntime&) = delete;
  DeviceRuntime& operator=(const DeviceRuntime&) = delete;

  /// Allocates a block of the heap under this thread's tag, as Heap::allocate. Every allocator that
  /// serves programs calls it. If there is no room, the reclaimer first offloads storages. If the
  /// budget is still the obstacle, it is exceeded. If the device is full, tags that may be paused
  /// (Evictable) are paused. `pool` kShared: this thread's PoolScope, if any.
  /// Stream: usable on `stream` at once. The host waits only if cached memory must be released or
  /// tags are paused.
  /// Errors: kOutOfDeviceMemory, whose text breaks memory down by owner and names the tag whose
  /// pause would have made room; kInvalidArgument if `stream` is invalid, detected at its first
  /// block or at a wait; kDriver. After an error, no further tag is paused.
  Result<driver::DevicePtr> allocate(Bytes size,
                                     driver::Stream stream,
                                     PoolId pool = PoolId::kShared);

  /// Offloads storages of the device until about `wanted` bytes are free in stream order, for a
  /// block of that use, and returns the freed bytes. The allocating thread calls it and may hold
  /// any lock, so it must not wait for a lock.
  using Reclaimer = Bytes (*)(DeviceRuntime& device, Bytes wanted, BlockUse use);
  /// What a reclaimer frees, in this order, but see ModelStateShare::set_share(). The first two are
  /// offloaded; recomputed results are released, and their next use recomputes them. For model
  /// state that streams (PlacementAdvisor::set_streaming), model state is first, then cached
  /// memory.
  enum class Reclaims : std::uint8_t { kSavedTensors, kModelState, kRecomputed, kCount };
  /// Sets a reclaimer of all devices; null: none.
  static void set_reclaimer(Reclaims of, Reclaimer reclaimer);

  /// An allocation of `size` bytes is about to exceed the budget, because nothing more can be
  /// offloaded. `needed`: the reserved bytes with it. As a Reclaimer, it must not wait for a lock
  /// that a caller of allocate() may hold.
  using ExcessObserver = void (*)(DeviceRuntime& device, Bytes size, Bytes needed);
  /// Sets the observer of all devices; null: none.
  static void set_excess_observer(ExcessObserver observer);

  /// Whether an allocation since the last call had to offload something or exceeded the budget.
  bool take_pressed() { return pressed_.exchange(false); }

  /// Frees a block of allocate, with its host copy if it is paused. Other processes cannot open it
  /// any more. As Heap::free.
  bool free(driver::DevicePtr at);

  /// Records that work on `stream` also uses the allocated block that contains `at`, as
  /// Heap::record_use.
  /// Errors: kInvalidArgument if the stream is invalid or no allocated block contains `at`;
  /// kDriver.
  Status record_use(driver::DevicePtr at, driver::Stream stream);

  /// The model state on this device.
  ModelStateShare& model_state() { return model_state_; }

  /// A step of a region with a budget begins: sets ModelStateShare::need(), and returns the
  /// allocated bytes that its curve begins with. These leave model state out if that needs room.
  Bytes begin_step();

  /// Returns the model state that needs room in a step that begins now, as for plan_beside(). Zero:
  /// it stays whatever is planned, and counts in the step's curve like all else.
  using ModelStateNeed = ModelStateTerms (*)(DeviceRuntime& device);
  /// Sets that of all devices; null: none.
  static void set_model_state_need(ModelStateNeed source);

  /// Sets the tag of the allocated block that contains `at` to `role`, unless the
  /// program has tagged it (spillway.tag).
  void set_role(driver::DevicePtr at, TagId role);

  /// Limits of the heap's reserved bytes.
  DeviceLimits& limits() { return *limits_; }

  /// Starts recording this device's storages (LifetimeRecorder::start), into a trace at `path`
  /// unless `path` is empty.
  /// Errors: as there; kDriver.
  Status start_recording(const std::string& path, std::size_t most);

  /// Extends `why`, the failure to allocate `size` bytes, by memory by owner and the tag whose
  /// pause would have made room.
  [[nodiscard]] Status oom_status(Bytes size, const Status& why);

  /// Pauses tags that may be paused until the device can supply `size` more bytes; returns the
  /// paused tags.
  /// Requires: the caller holds Evictable::operation_mutex.
  /// Stream: blocks the host.
  /// Errors: kOutOfDeviceMemory if the tags are too small; nothing is paused then.
  Result<std::vector<TagId>> evict_for(Bytes size);

  Heap& heap() { return *heap_; }

  HostArena& arena() { return *arena_; }

  CopyEngine& copies() { return *copies_; }

  Residency& residency() { return *residency_; }

  PauseManager& pauses() { return *pauses_; }

  /// Allocated bytes of this device, without model state that begin_step() leaves out, during the
  /// running step of a region with a budget. The heap's blocks report to it.
  AllocationCurve& curve() { return curve_; }

  /// The device's peaks by phase of a step. The heap's blocks report to it.
  StepPeaks& step_peaks() { return step_peaks_; }

  /// Measures the times of a step, from which a plan is made.
  StepRecording& step_recording() { return step_recording_; }

  /// Budgets, in bytes of this device.
  DeviceBudget& budget() { return *budget_; }

  [[nodiscard]] const DeviceBudget& budget() const { return *budget_; }

  /// Offloads what exceeds the held budget, after allocations for which there was no room.
  /// Stream: blocks the host if anything does.
  void return_to_job_budget();

  /// Memory that this process exports to others, and imports from them.
  Exports& exports() { return *exports_; }

  Imports& imports() { return *imports_; }

  /// Lets `peer` read and write all present and future memory of this device.
  /// Errors: as Heap::enable_peer.
  Status enable_peer(DeviceId peer);

  [[nodiscard]] const driver::Device& device() const { return device_; }

 private:
  DeviceRuntime(const driver::Device& device, Evictable& evictable)
      : device_(device), evictable_(evictable) {}

  /// The block is about to be freed.
  void left(const HeapBlockInfo& block, bool model_state);

  /// Lets the first reclaimer that can free memory do so. Returns the freed bytes.
  Bytes reclaim(Bytes wanted, BlockUse use);
  Result<driver::DevicePtr> allocate_under_pressure(Bytes size, driver::Stream stream, PoolId pool);
  Result<driver::DevicePtr> allocate_by_eviction(Bytes size, driver::Stream stream, PoolId pool);
  /// Bytes that the driver lacks to supply `size` more bytes.
  [[nodiscard]] Bytes missing(Bytes size) const;
  [[nodiscard]] std::string advice(Bytes missing) const;

  const driver::Device device_;
  Evictable& evictable_;
  std::atomic<std::uint64_t> offloaded_{0};
  std::atomic<bool> pressed_{false};
  AllocationCurve curve_;
  ModelStateShare model_state_{curve_};
  StepPeaks step_peaks_;
  StepRecording step_recording_{device_, curve_};
  std::unique_ptr<Heap> heap_;
  std::unique_ptr<DeviceBudget> budget_;
  std::unique_ptr<DeviceLimits> limits_;
  std::unique_ptr<HostArena> arena_;
  std::unique_ptr<CopyEngine> copies_;
  std::unique_ptr<Residency> residency_;
  std::unique_ptr<PauseManager> pauses_;
  std::unique_ptr<Exports> exports_;
  std::unique_ptr<Imports> imports_;
};

}  // namespace spillway
