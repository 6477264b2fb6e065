// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/runtime/runtime.h"

#include <c10/core/Storage.h>
#include <c10/core/TensorImpl.h>
#include <c10/cuda/CUDAStream.h>

#include <memory>
#include <optional>

namespace spillway {

struct RegionOptions;
class UnpackOrder;

/// One storage that autograd saves, however many tensors view it: one decision, at most one host
/// copy (law 5). The hooks of its tensors own it together; the last one ends the host copy (law 8).
///
/// The identity is the storage object: a weak reference keeps its address from being used again.
///
/// Threads: safe. Its lock may be held while memory is allocated from PyTorch's current allocator.
class SavedStorage : public std::enable_shared_from_this<SavedStorage> {
 public:
  /// The one for `storage`, made where there is none. Requires: a CUDA storage with memory.
  static std::shared_ptr<SavedStorage> of(const c10::Storage& storage, DeviceRuntime& device);

  SavedStorage(const c10::Storage& storage, DeviceRuntime& device);
  ~SavedStorage();
  SavedStorage(const SavedStorage&) = delete;
  SavedStorage& operator=(const SavedStorage&) = delete;

  /// Whether `storage` still has the memory that this one was made for.
  [[nodiscard]] bool is_of(const c10::StorageImpl& storage) const;

  /// A tensor on `storage` is saved by a hook. True: its bytes are, or are becoming, a host copy,
  /// and the hook need not hold the storage. False: the hook keeps it. Stream: the copy comes after
  /// what the current stream has been given (law 1).
  bool save(const c10::Storage& storage,
            const c10::VariableVersion& version,
            const RegionOptions& region);

  /// The bytes on the device again, usable on the current stream: the original where it is still
  /// alive, otherwise a copy that the hooks share. `round` is the hook's own, from hook_made().
  /// Errors: c10::Error for a failed copy, c10::OutOfMemoryError.
  c10::Storage bring_back(std::uint64_t& round);

  /// Begins its way back, where a hook may still ask for it and it is not there. True where a copy
  /// has begun. Errors: none; who unpacks it meets one that lasts.
  bool bring_back_ahead();

  /// A hook that keeps its tensor unpacks it. The first one learns whether anybody besides the
  /// hooks holds the storage, so that a step's plan is right from its second time on whatever its
  /// first one moved (law 6).
  void kept_is_used();

  /// The hook with this `round` has ended.
  void hook_gone(std::uint64_t round);
  /// The round that a new hook begins with.
  std::uint64_t hook_made();

 private:
  /// A copy on the device. It is held until every hook that was alive when it was fetched has
  /// unpacked once or ended, so that two views cost one copy; then the tensors that use it own it.
  struct Arrival {
    c10::Storage held;
    c10::weak_intrusive_ptr<c10::StorageImpl> seen;
    driver::Fence fence;
    c10::cuda::CUDAStream stream;  // it was allocated on
    bool waited;                   // by that stream
    bool used;                     // unpacked at least once
    std::int64_t waiting;          // hooks that have not unpacked since
  };

  bool copy_out(const c10::Storage& storage,
                const c10::VariableVersion& version,
                const RegionOptions& region) SPILLWAY_REQUIRES(mutex_);
  c10::Storage alias(c10::intrusive_ptr<c10::StorageImpl> alive, c10::cuda::CUDAStream consumer)
      SPILLWAY_REQUIRES(mutex_);
  c10::Storage fetch(c10::cuda::CUDAStream consumer, Haste haste) SPILLWAY_REQUIRES(mutex_);
  /// The original where it is alive and has not been given other memory.
  [[nodiscard]] c10::intrusive_ptr<c10::StorageImpl> original() const;
  [[nodiscard]] c10::Storage arrived() const SPILLWAY_REQUIRES(mutex_);
  void use_on(c10::cuda::CUDAStream consumer, const c10::Storage& storage)
      SPILLWAY_REQUIRES(mutex_);
  void one_waits_less() SPILLWAY_REQUIRES(mutex_);
  void settle_arrival() SPILLWAY_REQUIRES(mutex_);

  DeviceRuntime& device_;
  const c10::weak_intrusive_ptr<c10::StorageImpl> source_;
  c10::StorageImpl* const key_;
  const void* const data_;
  const Bytes size_;

  Mutex mutex_;
  bool decided_ SPILLWAY_GUARDED_BY(mutex_) = false;
  bool alive_reported_ SPILLWAY_GUARDED_BY(mutex_) = false;
  bool kept_used_ SPILLWAY_GUARDED_BY(mutex_) = false;
  Site site_ SPILLWAY_GUARDED_BY(mutex_);
  c10::VariableVersion version_ SPILLWAY_GUARDED_BY(mutex_);  // of the tensor at the last copy out
  std::uint32_t version_number_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  std::optional<Stash> stash_ SPILLWAY_GUARDED_BY(mutex_);
  CUstream producer_ SPILLWAY_GUARDED_BY(mutex_) = nullptr;
  std::optional<Arrival> arrival_ SPILLWAY_GUARDED_BY(mutex_);
  std::uint64_t round_ SPILLWAY_GUARDED_BY(mutex_) = 0;  // one more at each fetch
  std::int64_t hooks_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  UnpackOrder* order_ SPILLWAY_GUARDED_BY(mutex_) = nullptr;  // null where it comes back on demand
};

}  // namespace spillway
