// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "torch_glue/model_state/link_backlog.h"
#include "torch_glue/model_state/managed_storage.h"
#include "torch_glue/model_state/recorded_need.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

namespace spillway {

/// The managed storages of one device.
/// Threads: safe. It calls a ManagedStorage without its own lock.
/// Ownership: never destroyed; storages own their entries.
class DeviceStorages {
 public:
  explicit DeviceStorages(DeviceRuntime& device) : device_(device), addresses_(device.device()) {}

  /// Manages a storage that is not managed yet. Errors: as ManagedStorage::manage.
  std::shared_ptr<ManagedStorage> manage(const c10::Storage& storage,
                                         ModelClass of,
                                         AccessOrder::Id id);
  void forget(const ManagedStorage& ended);
  void used(const ManagedStorage& storage, bool writes);
  void end_step();

  /// DeviceRuntime::ModelStateNeed, for this device: zero if all fits with an eighth to spare, else
  /// what exists now, without the optimizer's states. In a step of one forward pass also the states
  /// for which there is room when all gradients and a slice's temporaries exist: what leaves of
  /// these has to return before the optimizer steps.
  ModelStateTerms need();

  /// DeviceRuntime::Reclaimer, for this device.
  Bytes reclaim(Bytes wanted, BlockUse use);

  /// Begins to fetch storages that are used next, by the order of the last step. Where the budget
  /// has no room, storages that are used much later leave for them. Does nothing without a recorded
  /// step.
  /// Stream: `consumer`'s later work may use them; no wait.
  void prefetch(c10::cuda::CUDAStream consumer);

  /// Whether the optimizer's step should overlap: something has left in the running step, and that
  /// has few micro-batches. With many, the states that come and go in the first forward pass cost
  /// the plan of activations more than they save.
  [[nodiscard]] bool should_overlap() const;

  /// An operator begins, whose storages have been used(). What leaves by the plan of the running
  /// step after an earlier operator leaves now. Stream: no wait.
  void begin_operator();

  /// Begins to copy to the host what is then going to leave without a copy: what the last step
  /// wrote at the same place and offloaded before its next write; and while a model is loaded for
  /// which the budget has no room, what has been loaded.
  /// Stream: no wait.
  void copy_early();

  /// As ManagedStorages::offloaded_at.
  const ManagedStorage* offloaded_at(driver::DevicePtr at);

  /// Adds all of them.
  void collect(std::vector<std::shared_ptr<ManagedStorage>>& all);

 private:
  struct Sizes {
    Bytes states;   // of optimizers
    Bytes besides;  // everything else
  };

  /// The allocated bytes that are not managed; none in a step that all model state has room beside.
  [[nodiscard]] std::optional<Bytes> besides_model() const;
  /// Of all storages, wherever they are.
  [[nodiscard]] Sizes sizes() const SPILLWAY_REQUIRES(mutex_);

  /// An offloaded storage, and the number of its next use.
  struct Next {
    std::shared_ptr<ManagedStorage> storage;
    std::uint64_t use = 0;
    Bytes growth{};  // of the step's need until then
  };

  /// The next one to be offloaded for a block of that use, if it is used after `after`. While model
  /// state streams, one that is among such blocks is first, if it is used late enough.
  std::shared_ptr<ManagedStorage> take(std::uint64_t after, BlockUse use);
  /// Returns storages that could not be offloaded to the queue.
  void put_back(const std::vector<std::shared_ptr<ManagedStorage>>& taken);
  /// Offloads storages that are used after that use, until `wanted` bytes are free in stream order,
  /// for a block of that use.
  Bytes offload(Bytes wanted, std::uint64_t after, BlockUse use);

  /// Whether the model state without the optimizer's has no room at once: it streams through the
  /// device in each forward and backward pass.
  [[nodiscard]] bool streams() const SPILLWAY_REQUIRES(mutex_) {
    const Bytes budget = device_.budget().of_job();
    return !budget.zero() && besides_states_ >= budget;
  }

  /// The storage is used in a pass. Notes uses of parameters and gradients, which may leave after
  /// it.
  void use_in_pass(const ManagedStorage& storage) SPILLWAY_REQUIRES(mutex_);
  /// The storage has left the device.
  void left(const ManagedStorage& storage, Bytes size) SPILLWAY_REQUIRES(mutex_);

  /// Whether a forward or backward pass runs, as far as is known.
  [[nodiscard]] bool in_pass() const;
  /// Whether it is not prefetched now: in a step of several passes, what these fetch themselves
  /// does not wait behind the optimizer's states.
  [[nodiscard]] bool can_wait(const ManagedStorage& storage) const SPILLWAY_REQUIRES(mutex_);
  /// By how much the need beside the model rises from the last use to that one; zero while the step
  /// has made no use.
  [[nodiscard]] Bytes growth_until(std::uint64_t use) const SPILLWAY_REQUIRES(mutex_);
  /// The next one to be prefetched; none if enough are on their way.
  Next next_offloaded();
  /// Returns false if there is no room for it.
  bool start_prefetch(const Next& next, c10::cuda::CUDAStream consumer);
  /// Storages that are used after the result may leave for `next`; none if enough are on their way.
  std::optional<std::uint64_t> displaces(const Next& next);

  /// A storage had to leave that was prefetched for that use: nothing that is used then or later is
  /// prefetched before half of the way to that use.
  void hold_back(std::uint64_t use) SPILLWAY_REQUIRES(mutex_);
  /// It is copied by copy_early().
  void add_early(OffloadQueue::Slot slot) SPILLWAY_REQUIRES(mutex_);
  /// Whether it is resident for its next use, because it was prefetched.
  void set_ahead(const ManagedStorage& storage, bool ahead) SPILLWAY_REQUIRES(mutex_);

  /// Whether the storage still has its slot.
  [[nodiscard]] bool exists(const ManagedStorage& storage) const SPILLWAY_REQUIRES(mutex_) {
    return storages_[storage.slot()] == &storage;
  }

  DeviceRuntime& device_;
  OffloadedAddresses addresses_;
  mutable LightMutex mutex_;
  OffloadQueue queue_ SPILLWAY_GUARDED_BY(mutex_);
  std::vector<ManagedStorage*> storages_ SPILLWAY_GUARDED_BY(mutex_);  // by slot; null: none
  std::vector<bool> ahead_ SPILLWAY_GUARDED_BY(mutex_);                // by slot: prefetched
  Bytes ahead_bytes_ SPILLWAY_GUARDED_BY(mutex_);                      // of these
  RecordedNeed need_ SPILLWAY_GUARDED_BY(mutex_);
  std::vector<bool> is_gradient_ SPILLWAY_GUARDED_BY(mutex_);  // by slot: it was made as one
  Bytes gradients_ SPILLWAY_GUARDED_BY(mutex_);                // of these
  Bytes left_ SPILLWAY_GUARDED_BY(mutex_);                     // in the running step
  Bytes besides_states_ SPILLWAY_GUARDED_BY(mutex_);    // all but states when the last step ended
  std::size_t passes_ SPILLWAY_GUARDED_BY(mutex_) = 0;  // forward passes of the running step
  std::size_t last_passes_ SPILLWAY_GUARDED_BY(mutex_) = 0;  // of the last step
  LinkBacklog backlog_ SPILLWAY_GUARDED_BY(mutex_);
  // All storages used before this use are resident, or could not be fetched.
  std::uint64_t cursor_ SPILLWAY_GUARDED_BY(mutex_) = 0;

  // While fewer uses than held_until_ have passed, what is used from held_from_ on is not fetched.
  std::uint64_t held_from_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  std::uint64_t held_until_ SPILLWAY_GUARDED_BY(mutex_) = 0;

  /// How often a storage was used in passes.
  struct PassUses {
    std::size_t now = 0;   // in the running one
    std::size_t last = 0;  // in the last one that used it
  };

  /// A use of a storage in the running pass.
  struct Use {
    OffloadQueue::Slot slot;
    AccessOrder::Id id;
    bool leaves;  // after it
  };

  std::unordered_map<AccessOrder::Id, PassUses> uses_ SPILLWAY_GUARDED_BY(mutex_);
  std::vector<Use> used_ SPILLWAY_GUARDED_BY(mutex_);      // by the last operator
  std::vector<Use> used_now_ SPILLWAY_GUARDED_BY(mutex_);  // by the one that begins

  bool trains_ SPILLWAY_GUARDED_BY(mutex_) = false;   // there has been a gradient
  bool pressed_ SPILLWAY_GUARDED_BY(mutex_) = false;  // the budget had no room
  std::deque<OffloadQueue::Slot> early_ SPILLWAY_GUARDED_BY(mutex_);
  std::vector<bool> is_early_ SPILLWAY_GUARDED_BY(mutex_);  // by slot: it is in early_
};

}  // namespace spillway
