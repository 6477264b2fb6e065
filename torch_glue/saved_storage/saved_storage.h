// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/runtime/runtime.h"
#include "torch_glue/saved_storage/host_copy.h"
#include "torch_glue/saved_storage/recompute_chain.h"
#include "torch_glue/saved_storage/region_options.h"
#include "torch_glue/saved_storage/shared_storage.h"

#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace spillway {

class UnpackOrder;

/// A storage that is kept or offloaded. There is one decision for it, one host copy, and after a
/// fetch one device copy. Each covered byte is on the host at most once (invariant 5 in
/// docs/invariants.md). It is copied again only if it changed since (HostCopy::take). The decision
/// and the counter of offloaded bytes are for the whole storage. Copied bytes are those that its
/// saved tensors cover, and small remainders next to them (extend_to_block).
///
/// The host copy ends with the last handle (invariant 8). Its slot is then returned with the fences
/// of its copies.
///
/// Threads: safe. Its lock may be held while PyTorch's current allocator allocates memory.
class SavedStorage final : public SharedStorage, public std::enable_shared_from_this<SavedStorage> {
 public:
  /// The entry of `storage`, created if there is none. Requires: a CUDA storage with memory.
  static std::shared_ptr<SavedStorage> of(const c10::Storage& storage, DeviceRuntime& device);
  /// The entry of `storage`; null if there is none.
  static std::shared_ptr<SavedStorage> find(const c10::Storage& storage);

  /// The recomputations that would recompute it (Recipe::chain).
  void set_chain(const RecomputeChain& chain) {
    chain_length_ = chain.length;
    chain_narrowest_ = chain.narrowest.count();
  }

  [[nodiscard]] RecomputeChain chain() const { return {chain_length_, Bytes{chain_narrowest_}}; }

  /// Gives it the storages that would have been saved instead of it, had it been recomputed. It
  /// keeps no memory of theirs. If another node saves one of them in this step, that one keeps its
  /// decision, so that a step saves the same storages whatever is decided on this one.
  void own_substitutes(std::vector<std::shared_ptr<SharedStorage>> substitutes);

  /// For a handle that is made without a save: whether it can use the storage. After
  /// release_without_handles() it can if the original exists, which is then kept until the last
  /// handle ends.
  bool take_back();

  SavedStorage(const c10::Storage& storage, DeviceRuntime& device);
  ~SavedStorage() override;
  SavedStorage(const SavedStorage&) = delete;
  SavedStorage& operator=(const SavedStorage&) = delete;

  /// The part of a storage that a saved tensor covers. Borrowed for the call.
  struct Saved {
    const c10::Storage& storage;
    const ByteRange& bytes;  // not empty
    const c10::VariableVersion& version;
    driver::Stream stream;              // the current one of its device
    at::IntArrayRef sizes{};            // of the tensor
    const Decision* decided = nullptr;  // set if decided before, because it could be recomputed
  };

  /// A handle saves a tensor. Returns true if the handle must release its tensor, because the bytes
  /// are being copied or this object now references the storage. False: the handle keeps it.
  /// Also offloads waiting storages whose offload the plan puts at this save.
  /// Stream: the copy is ordered after the work submitted to the stream (invariant 1).
  bool save(const Saved& saved, const RegionOptions& region);

  /// A fetched copy spans from the first saved byte to the last. Addresses in it equal the original
  /// ones modulo 512.
  OnDevice fetch(std::uint64_t& round, const ByteRange& bytes) override;

  /// Begins a fetch if a handle may still use the storage and it is not resident. Fetches for
  /// `consumer`. If that belongs to another device, fetches for the current stream of the storage's
  /// device. Returns whether a copy has begun.
  /// Errors: not returned; the unpack raises a persistent one.
  bool prefetch(c10::cuda::CUDAStream consumer);

  /// Called when the device has no room: offloads a waiting storage now, and drops a prefetched
  /// copy that is not used yet. Returns the bytes that are then free in stream order. Zero if
  /// nothing can be freed, the storage is referenced elsewhere, or a thread is using it.
  /// Stream: no wait.
  Bytes reclaim();

  /// Takes the storage of this site of the running step from those that may have to be offloaded
  /// later in it, or fetched; null if it has ended. If the device has no room for an allocation,
  /// they are offloaded.
  static std::shared_ptr<SavedStorage> take_waiting(const Site& site);

  /// To be called when a handle that kept its tensor unpacks it. The first unpack checks whether
  /// the storage is referenced elsewhere. From the second step on, no plan therefore depends on
  /// what the first step offloaded (invariant 6).
  void kept_is_used();

  /// Number in the run log (RunLog); zero if it is off.
  [[nodiscard]] std::uint64_t number() const { return number_; }

 private:
  /// A copy on the device.
  struct Arrival {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    ByteRange bytes;  // of the saved storage
    driver::Fence fence;
    c10::cuda::CUDAStream stream;  // it was allocated on
    bool waited = false;           // that stream has waited for the copy
    bool used = false;             // unpacked at least once
  };

  /// A storage that may be offloaded later in its step, and the bytes to copy then.
  struct Waiting {
    c10::Storage storage;
    RegionOptions region;
    driver::Stream stream;  // of the save
    std::vector<std::pair<ByteRange, c10::VariableVersion>> saved;
  };

  bool save_first(const Saved& saved, const RegionOptions& region, Decision& decision)
      SPILLWAY_REQUIRES(mutex_);
  /// Keeps the storage, which may be offloaded later in the step.
  void wait(const Saved& saved, const RegionOptions& region) SPILLWAY_REQUIRES(mutex_);
  /// take_waiting() will find it.
  void wait_at_site() SPILLWAY_REQUIRES(mutex_);
  /// Records the offload in the accounting, the unpack order and the run log.
  void has_left(const RegionOptions& region, Bytes copied) SPILLWAY_REQUIRES(mutex_);
  /// Offloads it now if possible. Requires: the decision is to offload it.
  void leave();
  /// As leave(); the caller destroys `left` without the lock. False if the storage stays.
  bool leave(std::unique_ptr<Waiting>& left) SPILLWAY_REQUIRES(mutex_);
  /// Drops a prefetched copy that is not used yet, if any; returns its bytes.
  Bytes drop_unused() SPILLWAY_REQUIRES(mutex_);
  void drop_arrival() SPILLWAY_REQUIRES(mutex_);
  /// Records a use. Returns whether the caller is to report it as the first one (on_first_use).
  bool used_first() SPILLWAY_REQUIRES(mutex_);
  /// As fetch(). Sets `order` if the caller is to report the use to it.
  OnDevice use(std::uint64_t& round,
               const ByteRange& bytes,
               c10::cuda::CUDAStream consumer,
               UnpackOrder*& order) SPILLWAY_REQUIRES(mutex_);
  /// Starts the copy of `bytes`; returns the bytes copied, none if it failed.
  std::optional<Bytes> copy_out(const Saved& saved, const RegionOptions& region)
      SPILLWAY_REQUIRES(mutex_);
  bool save_again(const Saved& saved, const RegionOptions& region) SPILLWAY_REQUIRES(mutex_);
  c10::Storage alias(c10::intrusive_ptr<c10::StorageImpl> alive, c10::cuda::CUDAStream consumer)
      SPILLWAY_REQUIRES(mutex_);
  /// Whether a storage is referenced other than by `alive` itself and a copy in progress.
  [[nodiscard]] static bool referenced_elsewhere(const c10::intrusive_ptr<c10::StorageImpl>& alive);
  /// The range that it occupies on the device after a fetch.
  [[nodiscard]] ByteRange on_device_again() const SPILLWAY_REQUIRES(mutex_);
  c10::Storage fetch(c10::cuda::CUDAStream consumer, CopyPriority priority)
      SPILLWAY_REQUIRES(mutex_);
  [[nodiscard]] c10::Storage arrived() const SPILLWAY_REQUIRES(mutex_);
  void use_on(c10::cuda::CUDAStream consumer, const c10::Storage& storage)
      SPILLWAY_REQUIRES(mutex_);
  void before_release() override SPILLWAY_REQUIRES(mutex_);
  /// Keeps it no longer, until the next save or take_back().
  c10::Storage release() SPILLWAY_REQUIRES(mutex_);
  void handles_are_gone() override SPILLWAY_REQUIRES(mutex_);
  void release_without_handles() override;

  DeviceRuntime& device_;
  const std::uint64_t number_;
  std::atomic<int> chain_length_{0};
  std::atomic<std::uint64_t> chain_narrowest_{0};

  bool decided_ SPILLWAY_GUARDED_BY(mutex_) = false;
  bool alive_reported_ SPILLWAY_GUARDED_BY(mutex_) = false;
  bool used_ SPILLWAY_GUARDED_BY(mutex_) = false;        // unpacked
  bool taken_back_ SPILLWAY_GUARDED_BY(mutex_) = false;  // take_back() keeps it
  bool refused_ SPILLWAY_GUARDED_BY(mutex_) = false;     // a host copy was refused
  std::vector<std::shared_ptr<SharedStorage>> substitutes_ SPILLWAY_GUARDED_BY(mutex_);
  std::unique_ptr<Waiting> waiting_ SPILLWAY_GUARDED_BY(mutex_);  // also null once offloaded
  // Without the storage: what waiting_ was when it was released, until the next save or take_back()
  std::unique_ptr<Waiting> released_ SPILLWAY_GUARDED_BY(mutex_);
  Site site_ SPILLWAY_GUARDED_BY(mutex_);
  HostCopy copy_ SPILLWAY_GUARDED_BY(mutex_);  // empty if it is not offloaded
  std::optional<Arrival> arrival_ SPILLWAY_GUARDED_BY(mutex_);
  UnpackOrder* order_ SPILLWAY_GUARDED_BY(mutex_) = nullptr;  // null if it is fetched on demand
};

}  // namespace spillway
