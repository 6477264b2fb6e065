// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/managed_storage.h"

#include "allocator/device/fork.h"
#include "allocator/driver/timeline.h"
#include "allocator/heap/deferred_waits.h"
#include "allocator/tag/tag.h"
#include "torch_glue/base/check.h"
#include "torch_glue/base/compat.h"
#include "torch_glue/base/streams.h"
#include "torch_glue/cuda_allocator/cuda_allocator.h"
#include "torch_glue/cuda_allocator/side_stream.h"
#include "torch_glue/model_state/managed_storages.h"

#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/ScopeExit.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

namespace spillway {
namespace {

using Owner = std::shared_ptr<ManagedStorage>;

}  // namespace

const char* model_class_name(ModelClass of) {
  switch (of) {
    case ModelClass::kParameter:
      return "parameters";
    case ModelClass::kBuffer:
      return "buffers";
    case ModelClass::kGradient:
      return "gradients";
    case ModelClass::kOptimizerState:
      return "optimizer_states";
    case ModelClass::kCast:
      return "autocast_casts";
    case ModelClass::kCount:
      break;
  }
  return "";
}

/// A block of the device, until it is taken.
class ManagedStorage::Block {
 public:
  Block(Bytes size, c10::cuda::CUDAStream stream)
      : at_(SpillwayAllocator::instance().raw_alloc_with_stream(size.count(), stream.stream())) {}

  ~Block() { SpillwayAllocator::instance().release(at_); }

  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  [[nodiscard]] void* at() const { return at_; }

  void* take() { return std::exchange(at_, nullptr); }

 private:
  const ModelStateBlocks model_state_{};
  void* at_;
};

ManagedStorage::ManagedStorage(const c10::Storage& storage,
                               const HeapBlockInfo& block,
                               ModelClass of,
                               AccessOrder::Id id,
                               Place place)
    : storage_(storage.getWeakStorageImpl()),
      size_(storage.nbytes()),
      class_(of),
      id_(id),
      place_(place),
      tag_(block.tag),
      home_(block.stream),
      is_apart_(block.apart),
      block_(storage.unsafeGetStorageImpl()->mutable_data()) {}

std::shared_ptr<ManagedStorage> ManagedStorage::manage(const c10::Storage& storage,
                                                       ModelClass of,
                                                       AccessOrder::Id id,
                                                       Place place) {
  const HeapBlockInfo block = place.device.heap().find(driver::DevicePtr(storage.data()));
  const Owner made(new ManagedStorage(storage, block, of, id, place));
  {
    // It may have been filled on a stream other than that of its block.
    const LightLock lock(made->mutex_);
    made->wait_on(current_stream(place.device.device().id));
  }
  c10::StorageImpl& impl = *storage.unsafeGetStorageImpl();
  c10::DataPtr before = impl.set_data_ptr(
      {impl.mutable_data(), new Owner(made), &ManagedStorage::end, impl.device()});
  before.release_context();  // the block belongs to `made`
  place.device.model_state().add(place.device.heap().find(driver::DevicePtr(storage.data())),
                                 place.stays);
  return made;
}

ManagedStorage* ManagedStorage::of(const c10::StorageImpl& storage) {
  // The deleter and the context never change while the storage is managed.
  const c10::DataPtr& memory = compat::data_ptr_of(storage);
  if (memory.get_deleter() != &ManagedStorage::end) return nullptr;
  return static_cast<const Owner*>(memory.get_context())->get();
}

ManagedStorage* ManagedStorage::of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  return of(*tensor.storage().unsafeGetStorageImpl());
}

void ManagedStorage::end(void* context) {
  // Threads that do not exist in the child may hold the locks.
  if (in_forked_child()) return;
  const std::unique_ptr<Owner> owner(static_cast<Owner*>(context));
  ManagedStorages::instance().forget(**owner);
  ManagedStorage& ended = **owner;
  void* block = nullptr;
  {
    // An offload that is under way has a reference to the storage, so none is.
    const LightLock lock(ended.mutex_);
    if (ended.on_device_.exchange(false)) block = ended.block_;
    ended.kept_ = ResidentReason::kEnded;
  }
  const ModelStateBlocks model_state;
  SpillwayAllocator::instance().release(block);
}

ManagedStorage::~ManagedStorage() {
  if (address_ != driver::DevicePtr()) place_.addresses.give(address_, size_);
}

void ManagedStorage::pin(c10::StorageImpl& storage, c10::cuda::CUDAStream stream, bool writes) {
  const bool captured = SpillwayAllocator::instance().captures(stream.stream());
  pins_.fetch_add(1);
  const bool ready = on_device_ && awaited_.load(std::memory_order_relaxed) &&
                     !(writes && copied_.load(std::memory_order_relaxed)) &&
                     home_.load(std::memory_order_relaxed) == stream.stream();
  if (captured || !ready) {
    try {
      if (captured) {
        prepare_captured(storage, stream);
      } else {
        prepare(storage, stream, writes);
      }
    } catch (...) {
      unpin();
      throw;
    }
  }
  if (writes) changed_.store(true, std::memory_order_relaxed);
}

void ManagedStorage::prepare(c10::StorageImpl& storage, c10::cuda::CUDAStream stream, bool writes) {
  fetch(storage, stream);
  const LightLock lock(mutex_);
  wait_on(stream);
  if (writes) wait_for_copy(stream);
}

void ManagedStorage::prepare_captured(c10::StorageImpl& storage, c10::cuda::CUDAStream stream) {
  const c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
  kept_ = ResidentReason::kGraph;
  // A replay neither fetches nor waits for one.
  fetch(storage, c10::cuda::getStreamFromPool(/*isHighPriority=*/false, stream.device_index()));
  const LightLock lock(mutex_);
  if (arrival_.set()) check(driver::Timeline::wait_sync(arrival_));
  awaited_ = true;
  if (copied_.exchange(false)) check(driver::Timeline::wait_sync(host_.written()));
  if (home_ != stream.stream()) SpillwayAllocator::instance().record_use(block_, stream);
}

void ManagedStorage::fetch(c10::StorageImpl& storage, c10::cuda::CUDAStream stream) {
  {
    const LightLock lock(mutex_);
    if (on_device_) return;
  }
  const c10::cuda::CUDAGuard guard(stream.device_index());
  const TagScope tag(tag_);
  if (SideStream::entered_as(stream.stream()) != nullptr) {
    fetch_ahead(storage, SideStream::home(), CopyPriority::kDemand);
    return;
  }
  Block block(size_, stream);
  const LightLock lock(mutex_);
  // Another thread may have fetched it meanwhile. It stays resident: it is pinned.
  if (!on_device_) fetch_into(block, storage, stream, CopyPriority::kDemand, /*waits=*/true);
}

bool ManagedStorage::fetch_ahead(c10::StorageImpl& storage,
                                 c10::cuda::CUDAStream home,
                                 CopyPriority priority) {
  const DeferredWaits waits;
  Block block(size_, home);
  auto unfilled = c10::make_scope_exit([&] {
    for (const driver::Fence fence : waits.fences())
      place_.device.heap().add_fence(driver::DevicePtr(block.at()), fence);
  });
  const LightLock lock(mutex_);
  if (on_device_ || !has_host_ || ManagedStorage::of(storage) != this) return false;
  check(waits.fences().wait(place_.device.copies().in_stream(priority)).status());
  fetch_into(block, storage, home, priority, /*waits=*/false);
  unfilled.release();
  return true;
}

bool ManagedStorage::prefetch(c10::cuda::CUDAStream consumer) {
  const auto alive = storage_.lock();
  if (!alive || on_device_) return false;
  const c10::cuda::CUDAGuard guard(consumer.device_index());
  const TagScope tag(tag_);
  const OptionalAllocation optional;
  try {
    if (!fetch_ahead(*alive, consumer, CopyPriority::kPrefetch)) return false;
  } catch (const c10::Error& error) {
    static_cast<void>(error);  // it was only a prefetch
    return false;
  }
  ManagedStorages::instance().fetches().count_prefetch(size_);
  return true;
}

void ManagedStorage::fetch_into(Block& block,
                                c10::StorageImpl& storage,
                                c10::cuda::CUDAStream stream,
                                CopyPriority priority,
                                bool waits) {
  const auto fence = place_.device.residency().fetch(
      host_, driver::DevicePtr(block.at()), stream_of(stream), priority);
  check(fence.status());
  if (waits) {
    const Status waited = driver::Timeline::wait(stream_of(stream), fence.value());
    if (!waited.ok()) host_.set_offloaded(true);
    check(waited);
  }
  arrival_ = fence.value();
  block_ = block.take();
  is_apart_ = place_.device.heap().find(driver::DevicePtr(block_)).apart;
  others_.clear();
  changed_ = false;
  home_ = stream.stream();
  awaited_ = waits;
  copied_ = false;
  set_address(storage, block_);
  on_device_ = true;
  ManagedStorages::instance().fetches().add(block_, class_, size_);
}

void ManagedStorage::wait_on(c10::cuda::CUDAStream stream) {
  if (home_ == stream.stream()) {
    if (awaited_) return;
    check(driver::Timeline::wait(stream_of(stream), arrival_));
    awaited_ = true;
    return;
  }
  if (SideStream::entered_as(stream.stream()) != nullptr) {
    // It follows its home stream, and used_beside() marks its work. Another thread may have fetched
    // the storage since, also for another stream.
    check(driver::Timeline::wait(stream_of(stream), arrival_));
    if (home_ == SideStream::home().stream()) return;
    const driver::DevicePtr block(block_);
    const driver::FenceSet uses = checked(place_.device.heap().last_uses({&block, 1}));
    check(uses.wait(stream_of(stream)).status());
    check(place_.device.record_use(block, stream_of(stream)));
    return;
  }
  if (std::find(others_.begin(), others_.end(), stream.stream()) != others_.end()) return;
  check(driver::Timeline::wait(stream_of(stream), arrival_));
  check(place_.device.record_use(driver::DevicePtr(block_), stream_of(stream)));
  others_.push_back(stream.stream());
}

void ManagedStorage::used_beside(driver::Fence work) {
  const LightLock lock(mutex_);
  if (!on_device_) return;
  place_.device.heap().add_fence(driver::DevicePtr(block_), work);
  arrival_ = work;
  awaited_ = false;
  others_.clear();
}

bool ManagedStorage::may_be_used_beside(const c10::Storage& storage, c10::cuda::CUDAStream home) {
  const ManagedStorages& all = ManagedStorages::instance();
  if (kept() || all.keeps_all() || kept_in_step_ == all.step()) return false;
  const LightLock lock(mutex_);
  if (!on_device_) return true;
  const std::size_t holders = compat::holders_in_cpp(storage, *storage.unsafeGetStorageImpl());
  return home_ == home.stream() && only_keyed(holders);
}

void ManagedStorage::wait_for_copy(c10::cuda::CUDAStream stream) {
  if (!copied_) return;
  check(driver::Timeline::wait(stream_of(stream), host_.written()));
  copied_ = false;
}

void ManagedStorage::add_keyed(const at::Tensor& tensor) {
  const c10::Storage& storage = tensor.storage();
  const LightLock lock(mutex_);
  if (only_keyed_) return;
  const std::size_t holders = compat::holders_in_cpp(storage, *storage.unsafeGetStorageImpl());
  c10::TensorImpl* const impl = tensor.unsafeGetTensorImpl();
  const bool is_known = std::any_of(keyed_.begin(), keyed_.end(), [&](const auto& each) {
    return each._unsafe_get_target() == impl;
  });
  // One holder is this tensor. PyTorch swaps no tensors that have weak references.
  if (!is_known && holders != 1) keyed_.emplace_back(tensor.getIntrusivePtr());
  if (holders == 1) only_keyed_ = true;
  only_keyed(holders);
}

bool ManagedStorage::only_keyed(std::size_t holders) {
  if (only_keyed_) return true;
  std::erase_if(keyed_, [](const auto& each) { return each.expired(); });
  only_keyed_ = keyed_.size() == holders;
  if (only_keyed_) keyed_.clear();
  return only_keyed_;
}

ResidentReason ManagedStorage::resident_reason() const {
  if (!on_device_) return ResidentReason::kNone;
  if (kept()) return kept_;
  const ManagedStorages& all = ManagedStorages::instance();
  if (all.keeps_all()) return ResidentReason::kProcessGroup;
  return kept_in_step_ == all.step() ? ResidentReason::kDataPtr : refused_.load();
}

bool ManagedStorage::faults_at(driver::DevicePtr at) const {
  return !on_device_ && at.address() >= address_.address() &&
         at.address() - address_.address() < size_.count();
}

StorageResidency ManagedStorage::residency() {
  const LightLock lock(mutex_);
  if (on_device_) {
    const bool arrived = !arrival_.set() || driver::Timeline::passed(arrival_);
    return arrived ? StorageResidency::kResident : StorageResidency::kFetching;
  }
  return driver::Timeline::passed(host_.written()) ? StorageResidency::kOffloaded
                                                   : StorageResidency::kOffloading;
}

void ManagedStorage::set_address(c10::StorageImpl& storage, void* at) {
  // In place: other threads may read the context meanwhile, and read the address only while the
  // storage is pinned.
  compat::set_address(storage, at);
}

}  // namespace spillway
