// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/managed_storage.h"

#include "allocator/base/log.h"
#include "allocator/driver/timeline.h"
#include "allocator/tag/tag.h"
#include "torch_glue/base/check.h"
#include "torch_glue/base/compat.h"
#include "torch_glue/base/streams.h"
#include "torch_glue/cuda_allocator/cuda_allocator.h"
#include "torch_glue/model_state/managed_storages.h"

#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <cstring>
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
      return "optimizer states";
    case ModelClass::kCount:
      break;
  }
  return "";
}

ManagedStorage::ManagedStorage(const c10::Storage& storage,
                               ModelClass of,
                               AccessOrder::Id id,
                               Place place)
    : storage_(storage.getWeakStorageImpl()),
      size_(storage.nbytes()),
      class_(of),
      id_(id),
      place_(place),
      tag_(place.device.heap().find(driver::DevicePtr(storage.data())).tag),
      home_(place.device.heap().find(driver::DevicePtr(storage.data())).stream),
      block_(storage.unsafeGetStorageImpl()->mutable_data()) {}

std::shared_ptr<ManagedStorage> ManagedStorage::manage(const c10::Storage& storage,
                                                       ModelClass of,
                                                       AccessOrder::Id id,
                                                       Place place) {
  const Owner made(new ManagedStorage(storage, of, id, place));
  c10::StorageImpl& impl = *storage.unsafeGetStorageImpl();
  c10::DataPtr before = impl.set_data_ptr(
      {impl.mutable_data(), new Owner(made), &ManagedStorage::end, impl.device()});
  before.release_context();  // the block belongs to `made`
  return made;
}

ManagedStorage* ManagedStorage::of(const c10::StorageImpl& storage) {
  // The deleter and the context never change while the storage is managed.
  const c10::DataPtr& memory = compat::data_ptr_of(storage);
  if (memory.get_deleter() != &ManagedStorage::end) return nullptr;
  return static_cast<const Owner*>(memory.get_context())->get();
}

void ManagedStorage::end(void* context) {
  const std::unique_ptr<Owner> owner(static_cast<Owner*>(context));
  ManagedStorages::instance().forget(**owner);
  ManagedStorage& ended = **owner;
  // An offload that is under way has a reference to the storage, so none is.
  const LightLock lock(ended.mutex_);
  if (ended.on_device_.exchange(false)) SpillwayAllocator::instance().release(ended.block_);
  ended.kept_ = true;
}

ManagedStorage::~ManagedStorage() {
  if (address_ != driver::DevicePtr()) place_.addresses.give(address_, size_);
}

void ManagedStorage::pin(c10::cuda::CUDAStream stream, bool writes) {
  pins_.fetch_add(1);
  if (SpillwayAllocator::instance().captures(stream.stream())) return pin_for_graph(stream);
  const bool ready = on_device_ && home_.load(std::memory_order_relaxed) == stream.stream();
  if (ready) {
    // The home stream has waited for the fetch.
    if (writes) changed_.store(true, std::memory_order_relaxed);
    return;
  }
  const LightLock lock(mutex_);
  try {
    prepare(stream, writes);
  } catch (...) {
    unpin();
    throw;
  }
}

void ManagedStorage::pin_for_graph(c10::cuda::CUDAStream capturing) {
  const c10::cuda::CUDAStreamCaptureModeGuard relaxed(cudaStreamCaptureModeRelaxed);
  const LightLock lock(mutex_);
  try {
    if (!on_device_) fetch(c10::cuda::getDefaultCUDAStream(capturing.device_index()));
    if (arrival_.set()) check(driver::Timeline::wait_sync(arrival_));
  } catch (...) {
    unpin();
    throw;
  }
  changed_ = true;
  kept_ = true;
}

void ManagedStorage::prepare(c10::cuda::CUDAStream stream, bool writes) {
  if (!on_device_) fetch(stream);
  wait_on(stream);
  if (writes) changed_ = true;
}

void ManagedStorage::fetch(c10::cuda::CUDAStream stream) {
  const c10::cuda::CUDAGuard guard(stream.device_index());
  const TagScope tag(tag_);
  SpillwayAllocator& allocator = SpillwayAllocator::instance();
  void* const block = allocator.raw_alloc_with_stream(size_.count(), stream.stream());
  const auto fence = place_.device.residency().fetch(
      host_, driver::DevicePtr(block), stream_of(stream), CopyPriority::kDemand);
  if (!fence.ok()) {
    allocator.release(block);
    check(fence.status());
  }
  block_ = block;
  arrival_ = fence.value();
  others_.clear();
  changed_ = false;
  check(driver::Timeline::wait(stream_of(stream), arrival_));
  home_ = stream.stream();
  set_address(*storage_._unsafe_get_target(), block);
  on_device_ = true;
  ManagedStorages::instance().count_fetch(size_);
}

void ManagedStorage::wait_on(c10::cuda::CUDAStream stream) {
  if (home_ == stream.stream()) return;
  if (std::find(others_.begin(), others_.end(), stream.stream()) != others_.end()) return;
  check(driver::Timeline::wait(stream_of(stream), arrival_));
  check(place_.device.record_use(driver::DevicePtr(block_), stream_of(stream)));
  others_.push_back(stream.stream());
}

bool ManagedStorage::may_leave(const c10::StorageImpl& alive) {
  if (!on_device_ || kept_ || pins_ != 0 || ManagedStorage::of(alive) != this) return false;
  if (kept_in_step_ == ManagedStorages::instance().step()) return false;
  if (captures()) return false;
  return only_keyed_;
}

void ManagedStorage::add_keyed(const at::Tensor& tensor) {
  if (only_keyed_) return;
  const c10::Storage& storage = tensor.storage();
  std::uint64_t changes = 0;
  std::size_t known = 0;
  {
    const LightLock lock(mutex_);
    note_keyed(tensor);
    changes = keyed_changes_;
    known = keyed_.size();
  }
  const bool all = compat::holders(storage, *storage.unsafeGetStorageImpl()) == known;
  const LightLock lock(mutex_);
  note_keyed(tensor);
  if (!all || changes != keyed_changes_) return;
  only_keyed_ = true;
  keyed_.clear();
}

void ManagedStorage::note_keyed(const at::Tensor& tensor) {
  const auto is_same = [&](const auto& each) {
    return each._unsafe_get_target() == tensor.unsafeGetTensorImpl();
  };
  if (std::erase_if(keyed_, [](const auto& each) { return each.expired(); }) != 0) ++keyed_changes_;
  if (std::any_of(keyed_.begin(), keyed_.end(), is_same)) return;
  keyed_.emplace_back(tensor.getIntrusivePtr());
  ++keyed_changes_;
}

bool ManagedStorage::captures() const {
  const auto& allocator = SpillwayAllocator::instance();
  return allocator.captures(current_stream(place_.device.device().id).stream()) ||
         allocator.captures(home_);
}

Bytes ManagedStorage::offload() {
  const auto alive =
      storage_.lock();  // its last reference may be this one, and ends without the lock
  if (!alive || !mutex_.try_lock()) return {};
  const std::unique_lock<LightMutex> lock(mutex_, std::adopt_lock);
  if (!may_leave(*alive)) return {};
  on_device_ = false;
  if (pins_ != 0) {
    on_device_ = true;
    return {};
  }
  if (const Status left = copy_out(); !left.ok()) {
    on_device_ = true;
    if (log_enabled()) log("a storage of the model stays on the GPU: " + left.message());
    return {};
  }
  set_address(*alive, address_.raw());
  SpillwayAllocator::instance().release(std::exchange(block_, nullptr));
  return size_;
}

Status ManagedStorage::copy_out() {
  if (address_ == driver::DevicePtr()) {
    SPILLWAY_ASSIGN_OR_RETURN(address_, place_.addresses.take(size_));
  }
  if (has_host_ && !changed_) {
    if (ManagedStorages::instance().chaotic()) verify();
    host_.set_offloaded(true);
    ManagedStorages::instance().count_drop(size_);
    return {};
  }
  const driver::DevicePtr block(block_);
  if (!others_.empty()) {
    SPILLWAY_ASSIGN_OR_RETURN(const driver::FenceSet uses,
                              place_.device.heap().last_uses({&block, 1}));
    SPILLWAY_RETURN_IF_ERROR(uses.wait(place_.device.copies().out_stream()).status());
  }
  SPILLWAY_ASSIGN_OR_RETURN(host_,
                            place_.device.residency().stash(
                                block, size_, driver::Stream(home_, place_.device.device().id)));
  has_host_ = true;
  ManagedStorages::instance().count_offload(size_);
  return {};
}

void ManagedStorage::verify() {
  const driver::DevicePtr block(block_);
  const auto uses = place_.device.heap().last_uses({&block, 1});
  auto copy = place_.device.residency().stash(
      block, size_, driver::Stream(home_, place_.device.device().id));
  if (!uses.ok() || !copy.ok()) return;
  check(uses.value().wait_sync());
  check(driver::Timeline::wait_sync(host_.written()));
  check(driver::Timeline::wait_sync(copy.value().written()));
  if (std::memcmp(copy.value().bytes().data, host_.bytes().data, size_.count()) != 0)
    ManagedStorages::instance().count_stale();
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
