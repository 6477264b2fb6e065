// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/runtime/runtime.h"
#include "torch_glue/saved_tensors/host_copy.h"
#include "torch_glue/saved_tensors/region_options.h"

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

/// The state shared by all saved tensors over one storage. There is one decision for it, one host
/// copy, and after a fetch one device copy. Each covered byte is on the host at most once
/// (invariant 5 in docs/invariants.md). It is copied again only if it changed since
/// (HostCopy::take). The decision and the counter of offloaded bytes are for the whole storage.
/// Copied bytes are those that its saved tensors cover, and small remainders next to them
/// (extend_to_block).
///
/// The hooks of the saved tensors own it together. The host copy ends with the last hook
/// (invariant 8). Its slot is then returned with the fences of its copies.
///
/// It is identified by the storage object; a weak reference prevents reuse of its address.
///
/// Threads: safe. Its lock may be held while PyTorch's current allocator allocates memory.
class SavedStorage : public std::enable_shared_from_this<SavedStorage> {
 public:
  /// The entry of `storage`, created if there is none. Requires: a CUDA storage with memory.
  static std::shared_ptr<SavedStorage> of(const c10::Storage& storage, DeviceRuntime& device);
  /// Whether there is an entry; sets `chain` to its value from set_recompute_depth().
  static bool knows(const c10::Storage& storage, int& chain);

  /// Sets the number of consecutive recomputations that would recompute it, its own included
  /// (Recipe::chain). knows() returns it as `chain`.
  void set_recompute_depth(int chain) { chain_ = chain; }

  SavedStorage(const c10::Storage& storage, DeviceRuntime& device);
  ~SavedStorage();
  SavedStorage(const SavedStorage&) = delete;
  SavedStorage& operator=(const SavedStorage&) = delete;

  /// Whether `storage` still has the memory that this entry was created for.
  [[nodiscard]] bool is_of(const c10::StorageImpl& storage) const;

  /// The part of a storage that a saved tensor covers. Borrowed for the call.
  struct Saved {
    const c10::Storage& storage;
    const ByteRange& bytes;  // not empty
    const c10::VariableVersion& version;
    driver::Stream stream;              // the current one of its device
    at::IntArrayRef sizes{};            // of the tensor
    const Decision* decided = nullptr;  // set if decided before, because it could be recomputed
  };

  /// A hook saves a tensor. Returns true if the hook must release its tensor, because the bytes are
  /// being copied or this object now references the storage. False: the hook keeps it.
  /// Also offloads waiting storages whose offload the plan puts at this save. `round`: state of
  /// this hook, the number of the last fetch that it has seen. save() sets it; the hook passes the
  /// same variable to fetch() and remove_hook().
  /// Stream: the copy is ordered after the work submitted to the stream (invariant 1).
  bool save(const Saved& saved, const RegionOptions& region, std::uint64_t& round);

  /// Bytes of the saved storage, from `begin` on.
  struct OnDevice {
    c10::Storage storage;
    Bytes begin;
  };

  /// Makes `bytes`, and all other saved bytes, available on the device, usable on the current
  /// stream. Returns the original storage if it still exists, otherwise a copy that the hooks
  /// share. The copy spans from the first saved byte to the last. Addresses in it equal the
  /// original ones modulo 512. `round`: as set by save().
  /// Errors: c10::Error for a failed copy, c10::OutOfMemoryError.
  OnDevice fetch(std::uint64_t& round, const ByteRange& bytes);

  /// Begins a fetch if a hook may still use the storage and it is not resident. Fetches for
  /// `consumer`. If that belongs to another device, fetches for the current stream of the storage's
  /// device. Returns whether a copy has begun.
  /// Errors: not returned; the unpack raises a persistent one.
  bool prefetch(c10::cuda::CUDAStream consumer);

  /// Called when the device has no room: offloads a waiting storage now, and drops a prefetched
  /// copy that is not used yet. Returns the bytes that are then free in stream order. Zero if
  /// nothing can be freed, the storage is referenced elsewhere, or a thread is using it.
  /// Stream: no wait.
  Bytes reclaim();

  /// To be called when a hook that kept its tensor unpacks it. The first unpack checks whether the
  /// storage is referenced elsewhere. From the second step on, no plan therefore depends on what
  /// the first step offloaded (invariant 6).
  void kept_is_used();

  /// Number in the run log (RunLog); zero if it is off.
  [[nodiscard]] std::uint64_t number() const { return number_; }

  /// Adds a hook for a saved tensor that already has one; `round` as for save().
  void add_hook(std::uint64_t& round);

  /// Removes the hook with this `round`.
  void remove_hook(std::uint64_t round);

 private:
  std::atomic<int> chain_{0};

  /// A copy on the device. It is kept until every hook that existed at its fetch has unpacked once
  /// or ended, so that two views share one copy. After that only the tensors that use it keep it.
  struct Arrival {
    c10::Storage held;
    c10::weak_intrusive_ptr<c10::StorageImpl> seen;
    ByteRange bytes;  // of the saved storage
    driver::Fence fence;
    c10::cuda::CUDAStream stream;  // it was allocated on
    bool waited;                   // that stream has waited for the copy
    bool used;                     // unpacked at least once
    std::int64_t waiting;          // hooks that have not unpacked since
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
  /// Records the offload in the accounting, the unpack order and the run log.
  void has_left(const RegionOptions& region, Bytes copied) SPILLWAY_REQUIRES(mutex_);
  /// Offloads it now if possible. Requires: the decision is to offload it.
  void leave();
  /// As leave(); the caller destroys `left` without the lock. False if the storage stays.
  bool leave(std::unique_ptr<Waiting>& left) SPILLWAY_REQUIRES(mutex_);
  /// Drops a prefetched copy that is not used yet, if any; returns its bytes.
  Bytes drop_arrival() SPILLWAY_REQUIRES(mutex_);
  /// Whether this is its first use.
  bool used_first() SPILLWAY_REQUIRES(mutex_);
  /// As fetch(). Sets `news` to its site on the first use if the site is watched; the caller then
  /// calls on_first_use().
  OnDevice fetch(std::uint64_t& round,
                 const ByteRange& bytes,
                 c10::cuda::CUDAStream consumer,
                 std::optional<Site>& news);
  /// Starts the copy of `bytes`; returns the bytes copied, none if it failed.
  std::optional<Bytes> copy_out(const Saved& saved, const RegionOptions& region)
      SPILLWAY_REQUIRES(mutex_);
  bool save_again(const Saved& saved, const RegionOptions& region) SPILLWAY_REQUIRES(mutex_);
  c10::Storage alias(c10::intrusive_ptr<c10::StorageImpl> alive, c10::cuda::CUDAStream consumer)
      SPILLWAY_REQUIRES(mutex_);
  /// The range that it occupies on the device after a fetch.
  [[nodiscard]] ByteRange on_device_again() const SPILLWAY_REQUIRES(mutex_);
  c10::Storage fetch(c10::cuda::CUDAStream consumer, CopyPriority priority)
      SPILLWAY_REQUIRES(mutex_);
  /// The original storage if it exists with the same memory.
  [[nodiscard]] c10::intrusive_ptr<c10::StorageImpl> original() const;
  [[nodiscard]] c10::Storage arrived() const SPILLWAY_REQUIRES(mutex_);
  void use_on(c10::cuda::CUDAStream consumer, const c10::Storage& storage)
      SPILLWAY_REQUIRES(mutex_);
  void release_waiter() SPILLWAY_REQUIRES(mutex_);
  void order_free_after_copy() SPILLWAY_REQUIRES(mutex_);

  DeviceRuntime& device_;
  const c10::weak_intrusive_ptr<c10::StorageImpl> source_;
  c10::StorageImpl* const key_;
  const void* const data_;
  const Bytes size_;
  const std::uint64_t number_;

  LightMutex mutex_;
  bool decided_ SPILLWAY_GUARDED_BY(mutex_) = false;
  bool alive_reported_ SPILLWAY_GUARDED_BY(mutex_) = false;
  bool used_ SPILLWAY_GUARDED_BY(mutex_) = false;                 // unpacked
  bool refused_ SPILLWAY_GUARDED_BY(mutex_) = false;              // a host copy was refused
  std::unique_ptr<Waiting> waiting_ SPILLWAY_GUARDED_BY(mutex_);  // also null once offloaded
  Site site_ SPILLWAY_GUARDED_BY(mutex_);
  HostCopy copy_ SPILLWAY_GUARDED_BY(mutex_);  // empty if it is not offloaded
  std::optional<Arrival> arrival_ SPILLWAY_GUARDED_BY(mutex_);
  std::uint64_t round_ SPILLWAY_GUARDED_BY(mutex_) = 0;  // incremented at each fetch
  std::int64_t hooks_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  UnpackOrder* order_ SPILLWAY_GUARDED_BY(mutex_) = nullptr;  // null if it is fetched on demand
};

}  // namespace spillway
