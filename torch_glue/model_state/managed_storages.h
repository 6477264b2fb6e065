// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/runtime/stats.h"
#include "torch_glue/model_state/device_storages.h"
#include "torch_glue/model_state/storage_fetches.h"
#include "torch_glue/model_state/storage_names.h"
#include "torch_glue/model_state/unmanaged_storages.h"

#include <array>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace spillway {

/// Why a tensor's storage is not managed.
enum class Unmanaged : std::uint8_t {
  kNone,         // it is
  kNotOnDevice,  // CPU, meta, or no storage of its own
  kNotStrided,   // sparse, nested, a wrapper of other tensors
  kTiny,
  kOtherMemory,  // not a block of Spillway's heap, or of a graph's pool
  kKept,         // what it belongs to is kept (ManagedStorage::keep_owned)
};

/// Counters of all devices since the process started.
struct ManagedStats {
  struct OfClass {
    std::uint64_t storages = 0;
    Bytes resident;
    Bytes offloaded;
  };

  std::array<OfClass, static_cast<std::size_t>(ModelClass::kCount)> classes{};
  Bytes copied_out;
  Bytes fetched;
  Bytes prefetched;           // part of these that was fetched before its use
  Bytes dropped;              // offloaded without a copy
  ResidentCounts resident{};  // storages that stay on the device, also unmanaged ones
};

/// All managed storages of the process.
/// Threads: safe. It may be called with a ManagedStorage's lock held, and calls one without its
/// own. Ownership: one per process, never destroyed; storages own their entries.
class ManagedStorages {
 public:
  static ManagedStorages& instance();

  /// From now on manage() takes effect, and operators on managed tensors are guarded.
  /// `min_bytes`: smaller storages are not managed.
  void start(Bytes min_bytes);

  [[nodiscard]] Bytes min_bytes() const { return min_bytes_; }

  /// DeviceStorages::should_overlap, or chaos may make model state leave.
  bool overlaps_step(DeviceRuntime& device);

  [[nodiscard]] bool on() const { return on_.load(std::memory_order_relaxed); }

  /// Manages the tensor's storage, and gives the tensor the guard's key. `owner`: the parameter
  /// that it is the gradient or state of, or undefined; with `slot` it identifies the storage in
  /// every step. Repeated calls only set the key.
  Unmanaged manage(const at::Tensor& tensor, ModelClass of, const at::Tensor& owner, int slot);

  /// Called when the storage ends.
  void forget(const ManagedStorage& ended);

  /// From now on what is resident stays so, and what is fetched too.
  void keep_all() { keeps_all_ = true; }

  /// A storage of model state is not given to manage(), for that reason. For statistics.
  void stays(const c10::Storage& storage, ResidentReason why) { unmanaged_.add(storage, why); }

  [[nodiscard]] bool keeps_all() const { return keeps_all_.load(std::memory_order_relaxed); }

  /// Records a use, for the choice of what to offload. Requires: it is pinned.
  void used(const ManagedStorage& storage, bool writes);

  /// Begins to copy what leaves next, and to fetch what is used next (DeviceStorages).
  void copy_ahead(DeviceRuntime& device, c10::cuda::CUDAStream consumer);

  /// DeviceStorages::copy_early of all devices.
  void copy_early();

  /// A step has ended.
  void end_step();

  /// The running step; the first one is 1.
  [[nodiscard]] std::uint64_t step() const { return step_.load(std::memory_order_relaxed); }

  /// DeviceRuntime::Reclaimer: offloads the storages whose next use is farthest away.
  static Bytes reclaim(DeviceRuntime& device, Bytes wanted, BlockUse use = BlockUse::kAny);

  /// Offloads all that can be. Returns their bytes.
  Bytes offload_all();

  /// Between any two operators, each resident storage is offloaded with the probability
  /// 1 / `one_in`, by `seed`; zero ends it. Host copies that pass for right are compared with the
  /// device. For tests.
  void set_chaos(std::uint64_t seed, unsigned one_in);

  [[nodiscard]] bool chaotic() const { return chaos_.load(std::memory_order_relaxed) != 0; }

  /// Errors: c10::Error after a host copy was found that passed for right and is not.
  void make_chaos();

  [[nodiscard]] ManagedStats stats();

  /// Bytes by ModelClass.
  using ByClass = std::array<Bytes, static_cast<std::size_t>(ModelClass::kCount)>;

  /// Those on the device, and those on the host only.
  ModelStateBytes bytes(DeviceId device);

  StorageNames& names() { return names_; }

  /// No host memory could be pinned for a storage that was to be offloaded.
  void note_host_shortage(const Status& why);

  /// The first one, once. `model_state`: bytes of all managed storages.
  struct HostShortage {
    std::string why;
    ByClass model_state;
  };

  std::optional<HostShortage> take_host_shortage();

  /// The managed storage whose offloaded address range contains `at`; null if none. Waits for no
  /// lock: for signal handlers.
  const ManagedStorage* offloaded_at(driver::DevicePtr at);

  /// Each fetch is added by its ManagedStorage.
  StorageFetches& fetches() { return fetches_; }

  void count_offload(Bytes size) { copied_out_ += size.count(); }

  void count_stale() { ++stale_; }

  void count_drop(Bytes size) { dropped_ += size.count(); }

 private:
  ManagedStorages() = default;

  /// DeviceRuntime::ModelStateNeed.
  static ModelStateTerms need(DeviceRuntime& device);
  std::vector<std::shared_ptr<ManagedStorage>> all();
  Unmanaged manage_storage(const at::Tensor& tensor,
                           ModelClass of,
                           const at::Tensor& owner,
                           int slot);
  DeviceStorages& of(DeviceRuntime& device) SPILLWAY_REQUIRES(mutex_);
  /// Null if the device has no managed storage.
  DeviceStorages* of(DeviceId device);

  std::atomic<bool> keeps_all_{false};
  std::atomic<bool> on_{false};
  Bytes min_bytes_;
  StorageFetches fetches_;
  std::atomic<std::uint64_t> copied_out_{0};
  std::atomic<std::uint64_t> dropped_{0};
  std::atomic<std::uint64_t> step_{1};
  std::atomic<unsigned> chaos_{0};
  std::atomic<std::uint64_t> stale_{0};

  UnmanagedStorages unmanaged_;
  StorageNames names_;
  LightMutex shortage_mutex_;
  std::string host_shortage_ SPILLWAY_GUARDED_BY(shortage_mutex_);
  bool host_shortage_taken_ SPILLWAY_GUARDED_BY(shortage_mutex_) = false;

  std::array<std::atomic<DeviceStorages*>, C10_COMPILE_TIME_MAX_GPUS> devices_{};
  LightMutex mutex_;
  AccessOrder::Id next_id_ SPILLWAY_GUARDED_BY(mutex_) = 1;
  std::mt19937_64 dice_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
