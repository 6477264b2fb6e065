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

/// One storage that autograd saves, however many tensors view it: one decision, and each byte that
/// they cover at most once on the host (invariant 5 in docs/invariants.md). The decision, and what
/// is counted for it, is about the storage's bytes, which leave the device; copied is what its
/// tensors cover. The hooks of its tensors own it together; the last one ends the host copy
/// (invariant 8).
///
/// The identity is the storage object: a weak reference keeps its address from being used again.
///
/// Threads: safe. Its lock may be held while memory is allocated from PyTorch's current allocator.
class SavedStorage : public std::enable_shared_from_this<SavedStorage> {
 public:
  /// The one for `storage`, made where there is none. Requires: a CUDA storage with memory.
  static std::shared_ptr<SavedStorage> of(const c10::Storage& storage, DeviceRuntime& device);
  /// Whether there is one; `chain` is then what set_recompute_depth() said of it.
  static bool knows(const c10::Storage& storage, int& chain);

  /// It could have been computed again, from so many others one behind the other, itself included
  /// (Recipe::chain).
  void set_recompute_depth(int chain) { chain_ = chain; }

  SavedStorage(const c10::Storage& storage, DeviceRuntime& device);
  ~SavedStorage();
  SavedStorage(const SavedStorage&) = delete;
  SavedStorage& operator=(const SavedStorage&) = delete;

  /// Whether `storage` still has the memory that this one was made for.
  [[nodiscard]] bool is_of(const c10::StorageImpl& storage) const;

  /// What a tensor that is saved covers of its storage. Borrows it all for the call.
  struct Saved {
    const c10::Storage& storage;
    const ByteRange& bytes;  // not empty
    const c10::VariableVersion& version;
    driver::Stream stream;              // the current one of its device
    at::IntArrayRef sizes{};            // the tensor's
    const Decision* decided = nullptr;  // where it was, because it could be computed again
  };

  /// A hook saves a tensor. True: its bytes are, or are becoming, a host copy, or the storage is
  /// held here because it may have to move later; the hook need not hold it. False: the hook keeps
  /// it. Other storages, whose turn it is with this one, leave. Stream: the copy comes after what
  /// the stream has been given (invariant 1). `round` is the hook's own from here on, until
  /// remove_hook().
  bool save(const Saved& saved, const RegionOptions& region, std::uint64_t& round);

  /// Bytes of the saved storage, from `begin` on.
  struct OnDevice {
    c10::Storage storage;
    Bytes begin;
  };

  /// `bytes`, and all others that are saved, on the device again, usable on the current stream: the
  /// original where it is still alive, otherwise a copy that the hooks share, which begins and ends
  /// with what is saved and has what lies between. An address in it is the original one modulo 512.
  /// `round` is the hook's own, from save(). Errors: c10::Error for a failed copy,
  /// c10::OutOfMemoryError.
  OnDevice fetch(std::uint64_t& round, const ByteRange& bytes);

  /// Begins its way back for this stream, or the current one where that is another device's, where
  /// a hook may still ask for it and it is not there. True where a copy has begun. Errors: none;
  /// who unpacks it meets one that lasts.
  bool prefetch(c10::cuda::CUDAStream consumer);

  /// The device has no room: what waits leaves now, and what was prefetched and is not used yet is
  /// dropped. Returns the bytes that are free in stream order then; none where nothing could go,
  /// others hold the storage, or a thread is at work on it. Stream: no wait.
  Bytes reclaim();

  /// A hook that keeps its tensor unpacks it. The first one learns whether anybody besides the
  /// hooks holds the storage, so that a step's plan is right from its second time on whatever its
  /// first one moved (invariant 6).
  void kept_is_used();

  /// For the run log (RunLog): zero where that is off.
  [[nodiscard]] std::uint64_t number() const { return number_; }

  /// One more hook for what one has already; `round` as for save().
  void add_hook(std::uint64_t& round);

  /// The hook with this `round` has ended.
  void remove_hook(std::uint64_t round);

 private:
  std::atomic<int> chain_{0};

  /// A copy on the device. It is held until every hook that was alive when it was fetched has
  /// unpacked once or ended, so that two views cost one copy; then the tensors that use it own it.
  struct Arrival {
    c10::Storage held;
    c10::weak_intrusive_ptr<c10::StorageImpl> seen;
    ByteRange bytes;  // of the saved storage
    driver::Fence fence;
    c10::cuda::CUDAStream stream;  // it was allocated on
    bool waited;                   // by that stream
    bool used;                     // unpacked at least once
    std::int64_t waiting;          // hooks that have not unpacked since
  };

  /// A storage that may move later in its step, and what is to be copied then.
  struct Waiting {
    c10::Storage storage;
    RegionOptions region;
    driver::Stream stream;  // that it was saved on
    std::vector<std::pair<ByteRange, c10::VariableVersion>> saved;
  };

  bool save_first(const Saved& saved, const RegionOptions& region, Decision& decision)
      SPILLWAY_REQUIRES(mutex_);
  void has_left(const RegionOptions& region, Bytes copied) SPILLWAY_REQUIRES(mutex_);
  /// It moves now, if it can. Requires: the decision says so.
  void leave();
  /// As leave(); `left` is to end without the lock. False where it stays.
  bool leave(std::unique_ptr<Waiting>& left) SPILLWAY_REQUIRES(mutex_);
  /// Ends what was prefetched and is not used yet, if anything; its bytes.
  Bytes drop_arrival() SPILLWAY_REQUIRES(mutex_);
  /// Whether this is its first use.
  bool used_first() SPILLWAY_REQUIRES(mutex_);
  /// As fetch(); where that is news to the step's plan, `news` is its site.
  OnDevice fetch(std::uint64_t& round,
                 const ByteRange& bytes,
                 c10::cuda::CUDAStream consumer,
                 std::optional<Site>& news);
  /// What of `bytes` is copied now; nothing where that cannot be done.
  std::optional<Bytes> copy_out(const Saved& saved, const RegionOptions& region)
      SPILLWAY_REQUIRES(mutex_);
  bool save_again(const Saved& saved, const RegionOptions& region) SPILLWAY_REQUIRES(mutex_);
  c10::Storage alias(c10::intrusive_ptr<c10::StorageImpl> alive, c10::cuda::CUDAStream consumer)
      SPILLWAY_REQUIRES(mutex_);
  /// What it takes on the device when it comes back.
  [[nodiscard]] ByteRange on_device_again() const SPILLWAY_REQUIRES(mutex_);
  c10::Storage fetch(c10::cuda::CUDAStream consumer, CopyPriority haste) SPILLWAY_REQUIRES(mutex_);
  /// The original where it is alive and has not been given other memory.
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
  bool refused_ SPILLWAY_GUARDED_BY(mutex_) = false;              // a host copy
  std::unique_ptr<Waiting> waiting_ SPILLWAY_GUARDED_BY(mutex_);  // null where it has moved, too
  Site site_ SPILLWAY_GUARDED_BY(mutex_);
  HostCopy copy_ SPILLWAY_GUARDED_BY(mutex_);  // empty where it has not moved
  std::optional<Arrival> arrival_ SPILLWAY_GUARDED_BY(mutex_);
  std::uint64_t round_ SPILLWAY_GUARDED_BY(mutex_) = 0;  // one more at each fetch
  std::int64_t hooks_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  UnpackOrder* order_ SPILLWAY_GUARDED_BY(mutex_) = nullptr;  // null where it comes back on demand
};

}  // namespace spillway
