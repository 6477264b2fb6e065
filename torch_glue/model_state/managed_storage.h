// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/base/mutex.h"
#include "allocator/device/device_runtime.h"
#include "allocator/residency/residency.h"
#include "torch_glue/model_state/offload_queue.h"
#include "torch_glue/model_state/offloaded_addresses.h"
#include "torch_glue/model_state/resident_reason.h"

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
enum class ModelClass : std::uint8_t {
  kParameter,
  kBuffer,
  kGradient,
  kOptimizerState,
  kCast,  // autocast's, of a parameter
  kCount
};
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

/// A storage whose residency Spillway decides: of a parameter, a buffer, a gradient, an optimizer
/// state, or a cast of a parameter that autocast keeps. The storage object stays the same, and so
/// does its size. While it is offloaded, its data pointer is an address of its own at which nothing
/// is mapped. Its device address changes from one fetch to the next.
///
/// The storage's DataPtr owns it. It ends with the storage, or when that gets other memory
/// (`resize_`).
///
/// It is used between pin() and unpin(), for which every operator is guarded (guard.h). A tensor
/// without the guard's dispatch key must not see it offloaded: it is not offloaded before all
/// references to it were from tensors known to have the key (add_keyed). Views inherit the key.
/// Threads: safe. No lock is held while memory is allocated or freed, because that may call Python.
/// In a forked child it ends without an effect.
class ManagedStorage final : public std::enable_shared_from_this<ManagedStorage> {
 public:
  /// The device's stages, the addresses of its offloaded storages, and the slot in its
  /// OffloadQueue.
  struct Place {
    DeviceRuntime& device;
    OffloadedAddresses& addresses;
    OffloadQueue::Slot slot;
    bool stays = true;  // it hardly has to leave in this step
  };

  /// Manages `storage`: from here on its memory belongs to the result. Work submitted so far to the
  /// device's current stream counts as a use.
  /// Requires: its DataPtr owns a block of Spillway's heap, which begins at its data pointer.
  /// Errors: c10::Error; nothing has changed then.
  static std::shared_ptr<ManagedStorage> manage(const c10::Storage& storage,
                                                ModelClass of,
                                                AccessOrder::Id id,
                                                Place place);

  /// Null if it is not managed. Takes no lock.
  static ManagedStorage* of(const c10::StorageImpl& storage);
  /// Of the tensor's storage, if it is defined and has one.
  static ManagedStorage* of(const at::Tensor& tensor);

  ~ManagedStorage();
  ManagedStorage(const ManagedStorage&) = delete;
  ManagedStorage& operator=(const ManagedStorage&) = delete;

  /// Makes it resident for work that is submitted next to `stream`, and keeps it so until unpin().
  /// `storage`: what it manages. `writes`: the work may change it. If `stream` is being captured
  /// into a graph, it stays resident: the graph has its address.
  /// Stream: `stream` waits for the fetch, if any; no host wait outside of captures.
  /// Errors: c10::Error, c10::OutOfMemoryError; then it is not pinned, and nothing has changed.
  void pin(c10::StorageImpl& storage, c10::cuda::CUDAStream stream, bool writes);

  /// Begins to fetch it for work that is submitted to `consumer` later, if it is offloaded and
  /// there is room. Returns whether it is on its way. Stream: no wait; the first pin() waits.
  bool prefetch(c10::cuda::CUDAStream consumer);

  void unpin() { pins_.fetch_sub(1); }

  /// Work on a side stream (SideStream) uses it, up to `work`: other streams wait for that before
  /// they use it, and so does the next owner of its memory. Requires: it is pinned.
  void used_beside(driver::Fence work);

  /// Whether all later work on it waits for used_beside(): every tensor over `storage`, which it
  /// manages, has the guard's key, nothing else has its address, and its memory is that of `home`.
  bool may_be_used_beside(const c10::Storage& storage, c10::cuda::CUDAStream home);

  /// Offloads it, unless it is in use, is not resident, or has to stay. Returns the bytes that are
  /// then free in stream order.
  /// Stream: a copy follows all work submitted so far to the streams that used it; no wait.
  Bytes offload();

  /// Copies its bytes to `to`, in host memory, if it is offloaded; otherwise returns false.
  /// Requires: room for size() bytes.
  /// Stream: blocks the host until they are there.
  /// Errors: c10::Error.
  bool read_offloaded(std::byte* to);

  /// Copies it to the host, unless it is in use, has to stay, or has a host copy that is right. It
  /// stays resident, and then leaves without a copy if it is not written before. Returns the bytes
  /// that are copied.
  /// Stream: as offload(); its next writer waits for the copy, readers do not.
  Bytes copy_ahead();

  /// Keeps it resident from now on. Requires: it is pinned.
  void keep(ResidentReason why) { kept_ = why; }

  /// Likewise, until ManagedStorages::step() has another value.
  void keep_in_step(std::uint64_t step) { kept_in_step_ = step; }

  [[nodiscard]] bool kept() const { return kept_ != ResidentReason::kNone; }

  /// Why it stays resident, as far as it is known: kReferenced and kNoHostMemory are what the last
  /// attempt to offload it met. kNone if nothing keeps it, or it is offloaded.
  [[nodiscard]] ResidentReason resident_reason() const;

  /// Whether it is offloaded and `at` is in its address range. For reports; takes no lock.
  [[nodiscard]] bool faults_at(driver::DevicePtr at) const SPILLWAY_UNCHECKED_LOCKS;

  /// Gradients and states that belong to it are not managed from now on.
  void keep_owned() { keeps_owned_ = true; }

  [[nodiscard]] bool keeps_owned() const { return keeps_owned_; }

  /// This tensor over the storage has the guard's key.
  void add_keyed(const at::Tensor& tensor);

  [[nodiscard]] StorageResidency residency();

  [[nodiscard]] bool on_device() const { return on_device_; }

  /// HeapBlockInfo::apart of its last block.
  [[nodiscard]] bool is_apart() const { return is_apart_.load(std::memory_order_relaxed); }

  /// Whether it may have changed since its last copy to the host.
  [[nodiscard]] bool changed() const { return changed_.load(std::memory_order_relaxed); }

  [[nodiscard]] bool pinned() const { return pins_ != 0; }

  [[nodiscard]] Bytes size() const { return size_; }

  [[nodiscard]] ModelClass model_class() const { return class_; }

  void set_model_class(ModelClass of) { class_ = of; }

  [[nodiscard]] AccessOrder::Id id() const { return id_; }

  [[nodiscard]] DeviceRuntime& device() const { return place_.device; }

  [[nodiscard]] OffloadQueue::Slot slot() const { return place_.slot; }

 private:
  class Block;
  ManagedStorage(const c10::Storage& storage,
                 const HeapBlockInfo& block,
                 ModelClass of,
                 AccessOrder::Id id,
                 Place place);

  static void end(void* context);
  void prepare(c10::StorageImpl& storage, c10::cuda::CUDAStream stream, bool writes);
  void prepare_captured(c10::StorageImpl& storage, c10::cuda::CUDAStream stream);
  /// Fetches it if it is not resident.
  void fetch(c10::StorageImpl& storage, c10::cuda::CUDAStream stream);
  /// Begins to fetch it, if it is offloaded, into memory of `home`, which waits later, for the copy
  /// alone. Returns whether it did.
  bool fetch_ahead(c10::StorageImpl& storage, c10::cuda::CUDAStream home, CopyPriority priority);
  /// Fetches it into `block`, which it then owns. `stream` waits for it now, or has to later.
  void fetch_into(Block& block,
                  c10::StorageImpl& storage,
                  c10::cuda::CUDAStream stream,
                  CopyPriority priority,
                  bool waits) SPILLWAY_REQUIRES(mutex_);
  void wait_on(c10::cuda::CUDAStream stream) SPILLWAY_REQUIRES(mutex_);
  /// For a writer: `stream` waits for the copy of copy_ahead(). Later writers come after this one.
  void wait_for_copy(c10::cuda::CUDAStream stream) SPILLWAY_REQUIRES(mutex_);
  [[nodiscard]] bool may_leave(const c10::intrusive_ptr<c10::StorageImpl>& alive)
      SPILLWAY_REQUIRES(mutex_);
  /// If it may leave, keeps pin() from using it, until on_device_ is true again.
  bool close(const c10::intrusive_ptr<c10::StorageImpl>& alive) SPILLWAY_REQUIRES(mutex_);

  /// Whether its host copy is right.
  [[nodiscard]] bool is_clean() const SPILLWAY_REQUIRES(mutex_) { return has_host_ && !changed_; }

  /// Offloads it if it may leave. Returns its block for the caller to free; null if it stays.
  void* leave(const c10::intrusive_ptr<c10::StorageImpl>& alive) SPILLWAY_REQUIRES(mutex_);
  /// Whether all of `holders` references are from tensors with the key. Then it remains so.
  bool only_keyed(std::size_t holders) SPILLWAY_REQUIRES(mutex_);
  /// Whether this thread's work, or that of its home stream, goes into a graph.
  [[nodiscard]] bool captures() const;
  /// Copies it to the host.
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
  std::atomic<TagId> tag_;  // of its next block: that of the last one

  // pin() reads on_device_ after it has raised pins_; offload() reads pins_ after it has cleared
  // on_device_. So one of them sees the other.
  std::atomic<int> pins_{0};
  std::atomic<bool> on_device_{true};
  std::atomic<bool> changed_{true};  // since its last copy to the host
  std::atomic<ResidentReason> kept_{ResidentReason::kNone};
  std::atomic<ResidentReason> refused_{ResidentReason::kNone};  // by the last attempt to offload it
  std::atomic<bool> keeps_owned_{false};
  std::atomic<std::uint64_t> kept_in_step_{0};
  std::atomic<CUstream> home_;       // the stream that its block was allocated on
  std::atomic<bool> awaited_{true};  // home_ has waited for arrival_
  std::atomic<bool> copied_{false};  // by copy_ahead(), and not written since
  std::atomic<bool> is_apart_;       // HeapBlockInfo::apart of its last block

  LightMutex mutex_;
  void* block_ SPILLWAY_GUARDED_BY(mutex_);
  driver::DevicePtr address_ SPILLWAY_GUARDED_BY(mutex_);  // while it is offloaded; null: none yet
  Stash host_ SPILLWAY_GUARDED_BY(mutex_);                 // its host copy, if has_host_
  bool has_host_ SPILLWAY_GUARDED_BY(mutex_) = false;
  driver::Fence arrival_ SPILLWAY_GUARDED_BY(mutex_);  // of the last fetch or used_beside()
  // other streams that have used this block; they have waited for the fetch
  std::vector<CUstream> others_ SPILLWAY_GUARDED_BY(mutex_);
  bool only_keyed_ SPILLWAY_GUARDED_BY(mutex_) = false;  // all references are from keyed tensors
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>> keyed_
      SPILLWAY_GUARDED_BY(mutex_);
};

}  // namespace spillway
