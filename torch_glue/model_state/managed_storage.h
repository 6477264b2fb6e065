// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/device/device_runtime.h"
#include "allocator/residency/residency.h"
#include "torch_glue/model_state/access_order.h"
#include "torch_glue/model_state/offloaded_addresses.h"

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace spillway {

/// What a managed storage holds.
enum class ModelClass : std::uint8_t { kParameter, kBuffer, kGradient, kOptimizerState, kCount };
const char* model_class_name(ModelClass of);

/// Where the bytes of a managed storage are.
///
///   kResident --offload of a changed storage--> kOffloading
///   kResident --offload of an unchanged one, whose host copy is still right--> kOffloaded
///   kOffloading --its copy has passed--> kOffloaded
///   kOffloading, kOffloaded --use--> kFetching
///   kFetching --its copy has passed--> kResident
///   kFetching --offload--> kOffloaded (the host copy is still right)
///
/// The host never waits for a copy. In kOffloading and kFetching the device orders it: a fetch
/// follows the copy to the host, a stream that uses the storage waits for the fetch, and freed
/// memory has the fence of the copy that reads it.
enum class StorageResidency : std::uint8_t { kResident, kOffloading, kOffloaded, kFetching };

/// A storage whose residency Spillway decides: of a parameter, a buffer, a gradient or an optimizer
/// state. The storage object stays the same, and so does its size. While it is offloaded, its data
/// pointer is an address of its own at which nothing is mapped. Its device address changes from one
/// fetch to the next.
///
/// The storage's DataPtr owns it. It ends with the storage, or when that gets other memory
/// (`resize_`).
///
/// It is used between pin() and unpin(), for which every operator is guarded (guard.h). A tensor
/// without the guard's dispatch key must not see it offloaded: it is not offloaded before all
/// references to it were from tensors known to have the key (add_keyed). Views inherit the key.
/// Threads: safe.
class ManagedStorage final : public std::enable_shared_from_this<ManagedStorage> {
 public:
  /// The device's stages, and the addresses of its offloaded storages.
  struct Place {
    DeviceRuntime& device;
    OffloadedAddresses& addresses;
  };

  /// Manages `storage`: from here on its memory belongs to the result.
  /// Requires: a block of Spillway's heap begins at its data pointer; nothing else manages it.
  static std::shared_ptr<ManagedStorage> manage(const c10::Storage& storage,
                                                ModelClass of,
                                                AccessOrder::Id id,
                                                Place place);

  /// Null if it is not managed. Takes no lock.
  static ManagedStorage* of(const c10::StorageImpl& storage);

  ~ManagedStorage();
  ManagedStorage(const ManagedStorage&) = delete;
  ManagedStorage& operator=(const ManagedStorage&) = delete;

  /// Makes it resident for work that is submitted next to `stream`, and keeps it so until unpin().
  /// `writes`: the work may change it. Requires: the caller has a reference to the storage.
  /// If the stream is being captured into a graph, the storage stays resident from then on, because
  /// replays use its address.
  /// Stream: `stream` waits for the fetch, if any; no host wait, but in a capture, which the copy
  /// must not become part of.
  /// Errors: c10::Error, c10::OutOfMemoryError; then it is not pinned, and nothing has changed.
  void pin(c10::cuda::CUDAStream stream, bool writes);

  void unpin() { pins_.fetch_sub(1); }

  /// Offloads it, unless it is in use, is not resident, has to stay, or a graph is being captured
  /// on its home stream or by this thread. Returns the bytes that are then free in stream order.
  /// Stream: a copy follows all work submitted so far to the streams that used it; no wait.
  Bytes offload();

  /// Keeps it resident from now on. Requires: it is pinned.
  void keep() { kept_ = true; }

  /// Likewise, until ManagedStorages::step() has another value.
  void keep_in_step(std::uint64_t step) { kept_in_step_ = step; }

  [[nodiscard]] bool kept() const { return kept_; }

  /// This tensor over the storage has the guard's key. Storages that are referenced from others too
  /// stay resident, until a later call finds them gone.
  /// Requires: no lock is held, as the count of references may take the GIL.
  void add_keyed(const at::Tensor& tensor);

  [[nodiscard]] StorageResidency residency();

  [[nodiscard]] bool on_device() const { return on_device_; }

  [[nodiscard]] bool pinned() const { return pins_ != 0; }

  [[nodiscard]] Bytes size() const { return size_; }

  [[nodiscard]] ModelClass model_class() const { return class_; }

  void set_model_class(ModelClass of) { class_ = of; }

  [[nodiscard]] AccessOrder::Id id() const { return id_; }

  [[nodiscard]] DeviceRuntime& device() const { return place_.device; }

  /// Of its last use, in uses of all managed storages.
  [[nodiscard]] std::uint64_t last_use() const { return last_use_; }

  void used_at(std::uint64_t time) { last_use_.store(time, std::memory_order_relaxed); }

 private:
  ManagedStorage(const c10::Storage& storage, ModelClass of, AccessOrder::Id id, Place place);

  static void end(void* context);
  void pin_for_graph(c10::cuda::CUDAStream capturing);
  void prepare(c10::cuda::CUDAStream stream, bool writes) SPILLWAY_REQUIRES(mutex_);
  void fetch(c10::cuda::CUDAStream stream) SPILLWAY_REQUIRES(mutex_);
  void wait_on(c10::cuda::CUDAStream stream) SPILLWAY_REQUIRES(mutex_);
  /// Adds the tensor to keyed_, and drops those that have ended.
  void note_keyed(const at::Tensor& tensor) SPILLWAY_REQUIRES(mutex_);
  /// Whether this thread's work, or that of its home stream, goes into a graph.
  [[nodiscard]] bool captures() const;
  [[nodiscard]] bool may_leave(const c10::StorageImpl& alive) SPILLWAY_REQUIRES(mutex_);
  Status copy_out() SPILLWAY_REQUIRES(mutex_);
  /// Counts it as stale if its host copy, which passes for right, is not. Blocks the host; for
  /// tests.
  void verify() SPILLWAY_REQUIRES(mutex_);
  /// The address that tensors over the storage have.
  void set_address(c10::StorageImpl& storage, void* at);

  const c10::weak_intrusive_ptr<c10::StorageImpl> storage_;
  const Bytes size_;
  std::atomic<ModelClass> class_;
  const AccessOrder::Id id_;
  const Place place_;
  const TagId tag_;  // of its blocks

  // pin() reads on_device_ after it has raised pins_; offload() reads pins_ after it has cleared
  // on_device_. So one of them sees the other.
  std::atomic<int> pins_{0};
  std::atomic<bool> on_device_{true};
  std::atomic<bool> changed_{true};  // since its last copy to the host
  std::atomic<bool> kept_{false};
  std::atomic<std::uint64_t> kept_in_step_{0};
  std::atomic<CUstream> home_;  // the stream that its block was allocated on
  std::atomic<std::uint64_t> last_use_{0};

  // All references are from tensors with the key. It remains so, as they create no others.
  std::atomic<bool> only_keyed_{false};

  // Held by threads with the GIL, so those that hold it do not take the GIL.
  LightMutex mutex_;
  std::uint64_t keyed_changes_ SPILLWAY_GUARDED_BY(mutex_) = 0;
  // until only_keyed_
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> keyed_
      SPILLWAY_GUARDED_BY(mutex_);
  void* block_ SPILLWAY_GUARDED_BY(mutex_);
  driver::DevicePtr address_ SPILLWAY_GUARDED_BY(mutex_);  // while it is offloaded; null: none yet
  Stash host_ SPILLWAY_GUARDED_BY(mutex_);                 // its host copy, if has_host_
  bool has_host_ SPILLWAY_GUARDED_BY(mutex_) = false;
  driver::Fence arrival_ SPILLWAY_GUARDED_BY(mutex_);  // of the last fetch
  // other streams that have used this block; they have waited for the fetch
  std::vector<CUstream> others_ SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
