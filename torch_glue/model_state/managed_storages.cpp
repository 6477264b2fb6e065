// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/model_state/managed_storages.h"

#include "allocator/runtime/runtime.h"
#include "torch_glue/base/compat.h"
#include "torch_glue/cuda_allocator/cuda_allocator.h"
#include "torch_glue/model_state/budget_excess.h"
#include "torch_glue/model_state/guard.h"
#include "torch_glue/saved_storage/skip.h"

#include <ATen/SparseTensorImpl.h>

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <utility>

namespace spillway {
namespace {

constexpr AccessOrder::Id kSlots = StorageNames::kSlots;

/// For driver::describe_addresses.
const char* describe_offloaded(std::uintptr_t at) {
  ManagedStorages& all = ManagedStorages::instance();
  const ManagedStorage* const storage = all.offloaded_at(driver::DevicePtr(at));
  if (storage == nullptr) return nullptr;
  static std::array<char, 512> text{};
  const std::string name = all.names().of(storage->id());
  std::snprintf(
      text.data(),
      text.size(),
      ", because it belongs to an offloaded tensor of the %s: %s (%s). Code that uses its "
      "address without PyTorch's dispatcher needs spillway.memory.keep_on_device, or "
      "Tensor.data_ptr()",
      model_class_name(storage->model_class()),
      name.empty() ? "name unknown" : name.c_str(),
      readable(storage->size()).c_str());
  return text.data();
}

}  // namespace

ManagedStorages& ManagedStorages::instance() {
  static auto* const all = new ManagedStorages;
  return *all;
}

void ManagedStorages::start(Bytes min_bytes) {
  min_bytes_ = min_bytes;
  if (on_.exchange(true)) return;
  install_guard();
  note_budget_excesses();
  driver::describe_addresses(&describe_offloaded);
  Runtime::set_model_state_source([](DeviceId device) { return instance().bytes(device); });
  DeviceRuntime::set_reclaimer(DeviceRuntime::Reclaims::kModelState, &ManagedStorages::reclaim);
  DeviceRuntime::set_model_state_need(&ManagedStorages::need);
}

Unmanaged ManagedStorages::manage(const at::Tensor& tensor,
                                  ModelClass of,
                                  const at::Tensor& owner,
                                  int slot) {
  if (!on() || !tensor.defined() || !tensor.is_cuda()) return Unmanaged::kNotOnDevice;
  if (is_wrapper(tensor)) return Unmanaged::kNotStrided;
  if (tensor.layout() != at::kStrided) {
    if (tensor.layout() == at::kSparse) {
      const at::Tensor& values =
          static_cast<const at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl())->values();
      if (values.has_storage()) stays(values.storage(), ResidentReason::kSparse);
    }
    return Unmanaged::kNotStrided;
  }
  if (!tensor.has_storage()) return Unmanaged::kNotOnDevice;
  const Unmanaged why = manage_storage(tensor, of, owner, slot);
  if (why == Unmanaged::kTiny) stays(tensor.storage(), ResidentReason::kTiny);
  if (why == Unmanaged::kOtherMemory) stays(tensor.storage(), ResidentReason::kOtherMemory);
  if (why == Unmanaged::kKept) stays(tensor.storage(), ResidentReason::kKept);
  return why;
}

Unmanaged ManagedStorages::manage_storage(const at::Tensor& tensor,
                                          ModelClass of,
                                          const at::Tensor& owner,
                                          int slot) {
  const c10::Storage& storage = tensor.storage();
  if (ManagedStorage* const known = ManagedStorage::of(*storage.unsafeGetStorageImpl())) {
    known->set_model_class(of);
    set_guarded(tensor);
    known->add_keyed(tensor);
    return Unmanaged::kNone;
  }
  if (storage.nbytes() < min_bytes_.count() || storage.nbytes() == 0) return Unmanaged::kTiny;
  const LightLock lock(mutex_);
  if (ManagedStorage::of(*storage.unsafeGetStorageImpl()) != nullptr) {  // by another thread
    set_guarded(tensor);
    return Unmanaged::kNone;
  }
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
  AccessOrder::Id id = 0;
  if (const ManagedStorage* const known = ManagedStorage::of(owner)) {
    if (known->keeps_owned()) return Unmanaged::kKept;
    id = known->id() + static_cast<AccessOrder::Id>(slot) % kSlots;
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

void ManagedStorages::used(const ManagedStorage& storage, bool writes) {
  of(storage.device().device().id)->used(storage, writes);
}

void ManagedStorages::copy_ahead(DeviceRuntime& device, c10::cuda::CUDAStream consumer) {
  DeviceStorages& storages = *of(device.device().id);
  if (keeps_all()) return;
  storages.begin_operator();
  storages.copy_early();
  storages.prefetch(consumer);
}

bool ManagedStorages::overlaps_step(DeviceRuntime& device) {
  DeviceStorages* const known = of(device.device().id);
  return known != nullptr && !keeps_all() && (known->should_overlap() || chaotic());
}

void ManagedStorages::copy_early() {
  if (keeps_all()) return;
  for (auto& device : devices_)
    if (DeviceStorages* const known = device.load()) known->copy_early();
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

Bytes ManagedStorages::reclaim(DeviceRuntime& device, Bytes wanted, BlockUse use) {
  DeviceStorages* const known = instance().of(device.device().id);
  return known == nullptr ? Bytes{} : known->reclaim(wanted, use);
}

ModelStateTerms ManagedStorages::need(DeviceRuntime& device) {
  DeviceStorages* const known = instance().of(device.device().id);
  return known == nullptr ? ModelStateTerms{} : known->need();
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
  unmanaged_.read(stats.resident);
  for (const auto& storage : all()) {
    ManagedStats::OfClass& of = stats.classes.at(static_cast<std::size_t>(storage->model_class()));
    ++of.storages;
    (storage->on_device() ? of.resident : of.offloaded) += storage->size();
    const ResidentReason why = storage->resident_reason();
    if (why != ResidentReason::kNone) count(stats.resident, why, storage->size());
  }
  stats.copied_out = Bytes{copied_out_};
  stats.fetched = fetches_.fetched();
  stats.prefetched = fetches_.prefetched();
  stats.dropped = Bytes{dropped_};
  return stats;
}

ModelStateBytes ManagedStorages::bytes(DeviceId device) {
  static_assert(ModelStateBytes::kClasses == static_cast<std::size_t>(ModelClass::kCount));
  ModelStateBytes bytes;
  std::vector<std::shared_ptr<ManagedStorage>> found;
  if (DeviceStorages* const known = of(device)) known->collect(found);
  for (const auto& storage : found) {
    auto& of = storage->on_device() ? bytes.resident : bytes.offloaded;
    of.at(static_cast<std::size_t>(storage->model_class())) += storage->size();
  }
  return bytes;
}

void ManagedStorages::note_host_shortage(const Status& why) {
  const LightLock lock(shortage_mutex_);
  if (host_shortage_.empty() && !host_shortage_taken_) host_shortage_ = why.detail();
}

std::optional<ManagedStorages::HostShortage> ManagedStorages::take_host_shortage() {
  HostShortage shortage{};
  {
    const LightLock lock(shortage_mutex_);
    if (host_shortage_.empty()) return std::nullopt;
    host_shortage_taken_ = true;
    shortage.why = std::exchange(host_shortage_, {});
  }
  for (const auto& storage : all())
    shortage.model_state.at(static_cast<std::size_t>(storage->model_class())) += storage->size();
  return shortage;
}

const ManagedStorage* ManagedStorages::offloaded_at(driver::DevicePtr at) {
  for (auto& device : devices_) {
    DeviceStorages* const known = device.load();
    const ManagedStorage* const found = known == nullptr ? nullptr : known->offloaded_at(at);
    if (found != nullptr) return found;
  }
  return nullptr;
}

}  // namespace spillway
