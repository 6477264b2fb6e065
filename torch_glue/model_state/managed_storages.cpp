// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/managed_storages.h"

#include "allocator/runtime/runtime.h"
#include "torch_glue/base/compat.h"
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
  DeviceRuntime::add_reclaimer(&ManagedStorages::reclaim);
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
  const driver::DevicePtr at(compat::data_ptr_of(*storage.unsafeGetStorageImpl()).get());
  if (device == nullptr || !device->heap().owns(at)) return Unmanaged::kOtherMemory;
  const HeapBlockInfo block = device->heap().find(at);
  if (!block.allocated || block.at != at || block.shared || written_while_free(block.pool))
    return Unmanaged::kOtherMemory;
  std::shared_ptr<ManagedStorage> made;
  {
    const LightLock lock(mutex_);
    const AccessOrder::Id id = id_of(owner, slot);
    made = ManagedStorage::manage(storage, of, id, {*device, addresses_of(*device)});
    made->used_at(++time_);
    storages_.insert(made.get());
    order_.use(id);
  }
  set_guarded(tensor);
  made->add_keyed(tensor);
  return Unmanaged::kNone;
}

AccessOrder::Id ManagedStorages::id_of(const at::Tensor& owner, int slot) {
  if (owner.defined() && owner.has_storage()) {
    const ManagedStorage* const known = ManagedStorage::of(*owner.storage().unsafeGetStorageImpl());
    if (known != nullptr) return known->id() + static_cast<AccessOrder::Id>(slot) % kSlots;
  }
  return std::exchange(next_id_, next_id_ + kSlots);
}

OffloadedAddresses& ManagedStorages::addresses_of(DeviceRuntime& device) {
  std::unique_ptr<OffloadedAddresses>& known = addresses_[device.device().id];
  if (known == nullptr) known = std::make_unique<OffloadedAddresses>(device.device());
  return *known;
}

void ManagedStorages::forget(ManagedStorage& ended) {
  const LightLock lock(mutex_);
  storages_.erase(&ended);
}

void ManagedStorages::used(ManagedStorage& storage) {
  storage.used_at(++time_);
  const LightLock lock(mutex_);
  order_.use(storage.id());
}

void ManagedStorages::end_step() {
  ++step_;
  const LightLock lock(mutex_);
  order_.end_step();
}

std::vector<std::shared_ptr<ManagedStorage>> ManagedStorages::all() {
  std::vector<std::shared_ptr<ManagedStorage>> found;
  const LightLock lock(mutex_);
  found.reserve(storages_.size());
  for (ManagedStorage* const storage : storages_)
    found.push_back(storage->shared_from_this());
  return found;
}

Bytes ManagedStorages::reclaim(DeviceRuntime& device, Bytes wanted) {
  ManagedStorages& self = instance();

  struct Resident {
    std::size_t distance;
    std::uint64_t last_use;
    std::shared_ptr<ManagedStorage> storage;
  };

  std::vector<Resident> candidates;
  {
    const LightLock lock(self.mutex_);
    for (ManagedStorage* const storage : self.storages_) {
      if (&storage->device() != &device || !storage->on_device() || storage->pinned()) continue;
      candidates.push_back(
          {self.order_.distance(storage->id()), storage->last_use(), storage->shared_from_this()});
    }
  }
  std::sort(candidates.begin(), candidates.end(), [](const Resident& left, const Resident& right) {
    if (left.distance != right.distance) return left.distance > right.distance;
    return left.last_use < right.last_use;
  });
  Bytes freed;
  for (const Resident& each : candidates) {
    if (freed >= wanted) break;
    freed += each.storage->offload();
  }
  return freed;
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
