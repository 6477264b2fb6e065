// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/managed_storages.h"

#include "allocator/runtime/runtime.h"
#include "torch_glue/base/compat.h"
#include "torch_glue/cuda_allocator/cuda_allocator.h"
#include "torch_glue/model_state/guard.h"
#include "torch_glue/saved_storage/skip.h"

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

/// The gradient and the states of a parameter have the identities after its own.
constexpr AccessOrder::Id kSlots = 16;

}  // namespace

ManagedStorages& ManagedStorages::instance() {
  static auto* const all = new ManagedStorages;
  return *all;
}

void ManagedStorages::start(Bytes min_bytes) {
  min_bytes_ = min_bytes;
  if (on_.exchange(true)) return;
  install_guard();
  DeviceRuntime::set_reclaimer(DeviceRuntime::Reclaims::kModelState, &ManagedStorages::reclaim);
}

Unmanaged ManagedStorages::manage(const at::Tensor& tensor,
                                  ModelClass of,
                                  const at::Tensor& owner,
                                  int slot) {
  if (!on() || !tensor.defined() || !tensor.is_cuda()) return Unmanaged::kNotOnDevice;
  if (is_wrapper(tensor) || tensor.layout() != at::kStrided) return Unmanaged::kNotStrided;
  if (!tensor.has_storage()) return Unmanaged::kNotOnDevice;
  const c10::Storage& storage = tensor.storage();
  if (ManagedStorage* const known = ManagedStorage::of(*storage.unsafeGetStorageImpl())) {
    known->set_model_class(of);
    set_guarded(tensor);
    known->add_keyed(tensor);
    return Unmanaged::kNone;
  }
  if (storage.nbytes() < min_bytes_.count() || storage.nbytes() == 0) return Unmanaged::kTiny;
  DeviceRuntime* const device =
      Runtime::instance().devices().if_made(DeviceId{tensor.device().index()});
  const c10::DataPtr& memory = compat::data_ptr_of(*storage.unsafeGetStorageImpl());
  const driver::DevicePtr at(memory.get());
  if (device == nullptr || !device->heap().owns(at)) return Unmanaged::kOtherMemory;
  // Memory of other owners (from_blob) stays theirs, and that of a lazy copy is shared.
  if (memory.get_deleter() != SpillwayAllocator::instance().raw_deleter() ||
      memory.get_context() != memory.get())
    return Unmanaged::kOtherMemory;
  const HeapBlockInfo block = device->heap().find(at);
  if (!block.allocated || block.at != at || block.shared || written_while_free(block.pool))
    return Unmanaged::kOtherMemory;
  const LightLock lock(mutex_);
  if (ManagedStorage::of(*storage.unsafeGetStorageImpl()) != nullptr) {  // by another thread
    set_guarded(tensor);
    return Unmanaged::kNone;
  }
  AccessOrder::Id id = 0;
  if (owner.defined() && owner.has_storage()) {
    const ManagedStorage* const known = ManagedStorage::of(*owner.storage().unsafeGetStorageImpl());
    if (known != nullptr) id = known->id() + static_cast<AccessOrder::Id>(slot) % kSlots;
  }
  if (id == 0) id = std::exchange(next_id_, next_id_ + kSlots);
  const auto made = this->of(*device).manage(storage, of, id);
  set_guarded(tensor);
  made->add_keyed(tensor);
  return Unmanaged::kNone;
}

DeviceStorages& ManagedStorages::of(DeviceRuntime& device) {
  auto& known = devices_.at(static_cast<std::size_t>(device.device().id));
  if (known.load() == nullptr) known = new DeviceStorages(device);
  return *known.load();
}

DeviceStorages* ManagedStorages::of(DeviceId device) {
  return devices_.at(static_cast<std::size_t>(device)).load(std::memory_order_acquire);
}

void ManagedStorages::forget(const ManagedStorage& ended) {
  of(ended.device().device().id)->forget(ended);
}

void ManagedStorages::used(const ManagedStorage& storage) {
  of(storage.device().device().id)->used(storage);
}

void ManagedStorages::copy_ahead(DeviceRuntime& device, c10::cuda::CUDAStream consumer) {
  DeviceStorages& storages = *of(device.device().id);
  if (keeps_all()) return;
  storages.copy_loaded();
  storages.prefetch(consumer);
}

void ManagedStorages::copy_loaded() {
  if (keeps_all()) return;
  for (auto& device : devices_)
    if (DeviceStorages* const known = device.load()) known->copy_loaded();
}

void ManagedStorages::end_step() {
  ++step_;
  for (auto& device : devices_)
    if (DeviceStorages* const known = device.load()) known->end_step();
}

std::vector<std::shared_ptr<ManagedStorage>> ManagedStorages::all() {
  std::vector<std::shared_ptr<ManagedStorage>> found;
  for (auto& device : devices_)
    if (DeviceStorages* const known = device.load()) known->collect(found);
  return found;
}

Bytes ManagedStorages::reclaim(DeviceRuntime& device, Bytes wanted) {
  DeviceStorages* const known = instance().of(device.device().id);
  return known == nullptr ? Bytes{} : known->reclaim(wanted);
}

Bytes ManagedStorages::offload_all() {
  Bytes freed;
  for (const auto& storage : all())
    freed += storage->offload();
  return freed;
}

void ManagedStorages::set_chaos(std::uint64_t seed, unsigned one_in) {
  const LightLock lock(mutex_);
  dice_.seed(seed);
  chaos_ = one_in;
}

void ManagedStorages::make_chaos() {
  const unsigned one_in = chaos_;
  if (one_in == 0) return;
  auto found = all();
  // By identity: the set's order depends on addresses.
  std::sort(found.begin(), found.end(), [](const auto& left, const auto& right) {
    return left->id() < right->id();
  });
  for (const auto& storage : found) {
    bool leaves = false;
    {
      const LightLock lock(mutex_);
      leaves = dice_() % one_in == 0;
    }
    if (leaves) storage->offload();
  }
  TORCH_CHECK(
      stale_.exchange(0) == 0,
      "Spillway: a storage of the model was changed by an operator that does not declare it");
}

ManagedStats ManagedStorages::stats() {
  ManagedStats stats;
  for (const auto& storage : all()) {
    ManagedStats::OfClass& of = stats.classes.at(static_cast<std::size_t>(storage->model_class()));
    ++of.storages;
    (storage->on_device() ? of.resident : of.offloaded) += storage->size();
    if (storage->kept()) ++stats.kept;
  }
  stats.copied_out = Bytes{copied_out_};
  stats.fetched = Bytes{fetched_};
  stats.prefetched = Bytes{prefetched_};
  stats.dropped = Bytes{dropped_};
  return stats;
}

}  // namespace spillway
