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

std::shared_ptr<ManagedStorage> DeviceStorages::manage(const c10::Storage& storage,
                                                       ModelClass of,
                                                       AccessOrder::Id id) {
  // Other threads may use it as soon as it is managed, and then need its slot.
  const LightLock lock(mutex_);
  const OffloadQueue::Slot slot = queue_.add(id);
  try {
    auto made = ManagedStorage::manage(storage, of, id, {device_, addresses_, slot});
    if (storages_.size() <= slot) storages_.resize(slot + 1);
    storages_[slot] = made.get();
    return made;
  } catch (...) {
    queue_.remove(slot);
    throw;
  }
}

void DeviceStorages::forget(const ManagedStorage& ended) {
  const LightLock lock(mutex_);
  queue_.remove(ended.slot());
  storages_[ended.slot()] = nullptr;
}

void DeviceStorages::used(const ManagedStorage& storage) {
  const LightLock lock(mutex_);
  queue_.use(storage.slot());
}

void DeviceStorages::end_step() {
  const LightLock lock(mutex_);
  queue_.end_step();
}

void DeviceStorages::collect(std::vector<std::shared_ptr<ManagedStorage>>& all) {
  const LightLock lock(mutex_);
  for (ManagedStorage* const storage : storages_)
    if (storage != nullptr) all.push_back(storage->shared_from_this());
}

std::shared_ptr<ManagedStorage> DeviceStorages::take() {
  const LightLock lock(mutex_);
  const auto slot = queue_.take();
  return slot ? storages_[*slot]->shared_from_this() : nullptr;
}

Bytes DeviceStorages::reclaim(Bytes wanted) {
  std::vector<std::shared_ptr<ManagedStorage>> pinned;
  std::vector<std::shared_ptr<ManagedStorage>> refused;
  bool retried = false;
  Bytes freed;
  while (freed < wanted) {
    auto storage = take();
    if (storage == nullptr) {
      const LightLock lock(mutex_);
      if (std::exchange(retried, true) || !queue_.retry_refused()) break;
      continue;
    }
    const Bytes size = storage->offload();
    freed += size;
    // One that is not resident is in the queue again after its next use.
    if (size.zero() && storage->on_device())
      (storage->pinned() ? pinned : refused).push_back(std::move(storage));
  }
  const LightLock lock(mutex_);
  for (const auto& storage : pinned)
    if (storages_[storage->slot()] == storage.get()) queue_.put_back(storage->slot());
  for (const auto& storage : refused)
    if (storages_[storage->slot()] == storage.get()) queue_.refuse(storage->slot());
  return freed;
}

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
    if (known != nullptr && known->keeps_owned()) return Unmanaged::kKept;
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
  stats.dropped = Bytes{dropped_};
  return stats;
}

}  // namespace spillway
