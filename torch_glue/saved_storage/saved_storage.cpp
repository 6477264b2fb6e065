// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_storage/saved_storage.h"

#include "allocator/base/log.h"
#include "allocator/base/pooled.h"
#include "allocator/driver/span_log.h"
#include "allocator/runtime/run_log.h"
#include "allocator/tag/tag.h"
#include "torch_glue/base/check.h"
#include "torch_glue/base/compat.h"
#include "torch_glue/base/streams.h"
#include "torch_glue/saved_storage/budget.h"
#include "torch_glue/saved_storage/pending_sources.h"
#include "torch_glue/saved_storage/running_statistics.h"
#include "torch_glue/saved_storage/skip.h"
#include "torch_glue/saved_storage/storage_table.h"
#include "torch_glue/saved_storage/unpack_order.h"

#include <ATen/SequenceNumber.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include <iterator>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace spillway {
namespace {

/// The storages of a tag's running step that wait, by device and index.
struct OfTag {
  std::uint64_t step = 0;
  std::map<std::pair<DeviceId, std::size_t>, std::weak_ptr<SavedStorage>> storages{};
};

struct WaitingStorages {
  LightMutex mutex;
  std::unordered_map<TagId, OfTag> tags SPILLWAY_GUARDED_BY(mutex);

  /// Never destroyed.
  static WaitingStorages& instance() {
    static auto* const all = new WaitingStorages;
    return *all;
  }
};

/// DeviceRuntime::Reclaimer: per tag, the storages are offloaded in the order of their saves,
/// because backward passes usually use the first one last.
Bytes reclaim_on(DeviceRuntime& device, Bytes wanted, BlockUse /*use*/) {
  std::vector<std::shared_ptr<SavedStorage>> found;
  {
    WaitingStorages& waiting = WaitingStorages::instance();
    const LightLock lock(waiting.mutex);
    for (const auto& [id, tag] : waiting.tags) {
      for (const auto& [place, known] : tag.storages) {
        if (place.first != device.device().id) continue;
        if (auto storage = known.lock()) found.push_back(std::move(storage));
      }
    }
  }
  Bytes freed;
  for (const auto& storage : found) {
    if (freed >= wanted) break;
    freed += storage->reclaim();
  }
  device.model_state().count_reclaimed(freed);
  return freed;
}

}  // namespace

void SavedStorage::wait_at_site() {
  static std::once_flag once;
  std::call_once(once, [] {
    DeviceRuntime::set_reclaimer(DeviceRuntime::Reclaims::kSavedTensors, &reclaim_on);
  });
  WaitingStorages& waiting = WaitingStorages::instance();
  const LightLock lock(waiting.mutex);
  OfTag& tag = waiting.tags[site_.tag];
  if (std::exchange(tag.step, site_.step) != site_.step) tag.storages.clear();
  tag.storages[{site_.device, site_.index}] = weak_from_this();
}

std::shared_ptr<SavedStorage> SavedStorage::take_waiting(const Site& site) {
  WaitingStorages& waiting = WaitingStorages::instance();
  const LightLock lock(waiting.mutex);
  OfTag& tag = waiting.tags[site.tag];
  const auto found = tag.storages.find({site.device, site.index});
  if (tag.step != site.step || found == tag.storages.end()) return nullptr;
  auto storage = found->second.lock();
  tag.storages.erase(found);
  return storage;
}

std::shared_ptr<SavedStorage> SavedStorage::of(const c10::Storage& storage, DeviceRuntime& device) {
  // A storage with new memory is a different one: the host copy has its former contents.
  return StorageTable<SavedStorage>::instance().find_or_make(
      storage.unsafeGetStorageImpl(),
      [&](const SavedStorage& known) { return known.is_of(*storage.unsafeGetStorageImpl()); },
      [&] { return make_pooled<SavedStorage>(storage, device); });
}

std::shared_ptr<SavedStorage> SavedStorage::find(const c10::Storage& storage) {
  auto known = StorageTable<SavedStorage>::instance().find(storage.unsafeGetStorageImpl());
  return known != nullptr && known->is_of(*storage.unsafeGetStorageImpl()) ? known : nullptr;
}

SavedStorage::SavedStorage(const c10::Storage& storage, DeviceRuntime& device)
    : SharedStorage(storage),
      device_(device),
      number_(RunLog::on() ? RunLog::instance().number_storage() : 0),
      copy_(device, driver::DevicePtr(storage.data()), size_) {}

SavedStorage::~SavedStorage() {
  // No other reference exists, so no lock is needed.
  StorageTable<SavedStorage>::instance().forget(key_);
  if (order_ != nullptr) order_->gone(this);
  before_release();
  if (site_.watched) device_.curve().ended(site_.step, site_.index);
  if (copy_.empty()) return;
  if (number_ != 0) RunLog::instance().ended(number_);
  // Its owner may write to it now, but not before the copy has read it. An error is ignored: the
  // driver reports it again in the owner's next call.
  const auto alive = original();
  if (alive && referenced_elsewhere(alive)) static_cast<void>(copy_.make_producers_wait());
}

bool SavedStorage::save(const Saved& saved, const RegionOptions& region) {
  Decision decision;
  bool leaves = false;
  {
    const LightLock lock(mutex_);
    if (!std::exchange(decided_, true)) {
      leaves = save_first(saved, region, decision);
    } else if (waiting_ != nullptr) {
      waiting_->saved.emplace_back(saved.bytes, saved.version);
      leaves = true;
    } else if (std::exchange(released_, nullptr) != nullptr) {
      wait(saved, region);
      leaves = true;
    } else {
      leaves = !copy_.empty() && save_again(saved, region);
    }
  }
  for (const Site& due : decision.due) {
    if (const auto storage = take_waiting(due)) {
      storage->leave();
    } else {
      Runtime::instance().step().on_event(StorageEvent::kEndedBeforeOffload, due);
    }
  }
  return leaves;
}

bool SavedStorage::save_first(const Saved& saved, const RegionOptions& region, Decision& decision) {
  if (saved.decided != nullptr) {
    decision = *saved.decided;
  } else {
    if (region.budget) begin_budget_step(device_, saved.stream, region, saved.sizes);
    decision = Runtime::instance().step().decide(
        region.tag, device_.device().id, size_, at::sequence_number::peek());
    if (region.budget) on_saved(device_, decision, saved.stream);
  }
  site_ = decision.site;
  if (site_.watched) device_.curve().saved(site_.step, address_of(saved.storage), size_);
  see_running_statistics(!decision.known);
  if (decision.waits) {
    wait(saved, region);
    return true;
  }
  if (!decision.offload) return false;
  const auto copied = copy_out(saved, region);
  if (!copied) {
    Runtime::instance().step().on_event(StorageEvent::kNoHostMemory, site_, size_);
    return false;
  }
  if (site_.watched)
    device_.curve().watch(site_.step, address_of(saved.storage), site_.index, size_);
  has_left(region, *copied);
  return true;
}

void SavedStorage::wait(const Saved& saved, const RegionOptions& region) {
  waiting_ = std::make_unique<Waiting>(
      Waiting{saved.storage, region, saved.stream, {{saved.bytes, saved.version}}});
  wait_at_site();
}

void SavedStorage::own_substitutes(std::vector<std::shared_ptr<SharedStorage>> substitutes) {
  for (const auto& substitute : substitutes)
    substitute->release_without_handles();
  const LightLock lock(mutex_);
  std::move(substitutes.begin(), substitutes.end(), std::back_inserter(substitutes_));
}

void SavedStorage::release_without_handles() {
  c10::Storage left;  // destroyed without the lock
  const LightLock lock(mutex_);
  if (handles_ == 0) left = release();
}

c10::Storage SavedStorage::release() {
  if (waiting_ == nullptr) return {};
  taken_back_ = false;
  released_ = std::move(waiting_);
  return std::exchange(released_->storage, c10::Storage());
}

bool SavedStorage::take_back() {
  const LightLock lock(mutex_);
  if (released_ == nullptr) return true;
  auto alive = original();
  if (!alive) return false;
  waiting_ = std::move(released_);
  waiting_->storage = c10::Storage(std::move(alive));
  taken_back_ = true;
  wait_at_site();
  return true;
}

void SavedStorage::handles_are_gone() {
  if (taken_back_) release();
}

void SavedStorage::has_left(const RegionOptions& region, Bytes copied) {
  if (region.prefetch) {
    order_ = &UnpackOrder::of(region.tag);
    order_->offloaded(site_, *this, on_device_again().size(), region.prefetch_headroom);
  }
  Runtime::instance().step().offloaded(site_, size_, copied);
  if (site_.watched) wait_at_site();
  if (number_ == 0) return;
  const driver::DevicePtr block(data_);
  RunLog::instance().offloaded({number_,
                                device_.device().id,
                                block.address(),
                                size_,
                                copied,
                                site_.tag,
                                device_.heap().find(block).tag});
}

void SavedStorage::leave() {
  std::unique_ptr<Waiting> left;
  const LightLock lock(mutex_);
  if (!leave(left)) Runtime::instance().step().on_event(StorageEvent::kEndedBeforeOffload, site_);
}

bool SavedStorage::leave(std::unique_ptr<Waiting>& left) {
  if (waiting_ == nullptr || used_ || handles_ == 0 ||
      !is_of(*waiting_->storage.unsafeGetStorageImpl()) || capture_skip_reason(waiting_->stream)) {
    return false;
  }
  Bytes copied;
  for (const auto& [bytes, version] : waiting_->saved) {
    const auto more =
        copy_out({waiting_->storage, bytes, version, waiting_->stream}, waiting_->region);
    // The bytes on the host are then of no use, and the storage stays.
    if (!more) {
      refused_ = true;
      Runtime::instance().step().on_event(StorageEvent::kNoHostMemory, site_, size_);
      return true;
    }
    copied += *more;
  }
  if (site_.watched) {
    device_.curve().watch(site_.step, address_of(waiting_->storage), site_.index, size_);
  }
  has_left(waiting_->region, copied);
  left = std::move(waiting_);
  return true;
}

Bytes SavedStorage::reclaim() {
  std::unique_ptr<Waiting> left;
  if (!mutex_.try_lock()) return {};
  const std::unique_lock<LightMutex> lock(mutex_, std::adopt_lock);
  if (refused_) return {};
  if (waiting_ == nullptr) return drop_unused();
  const auto alive = original();
  constexpr std::size_t kOwn = 2;  // the waiting entry, and `alive`
  if (!alive || compat::holders(alive, *alive) > kOwn) return {};
  return leave(left) && left != nullptr ? size_ : Bytes{};
}

Bytes SavedStorage::drop_unused() {
  if (!arrival_ || arrival_->used || order_ != nullptr || !arrived()) return {};
  const Bytes bytes = arrival_->bytes.size();
  drop_arrival();
  return bytes;
}

void SavedStorage::drop_arrival() {
  if (!arrival_) return;
  copy_.set_offloaded(true);
  before_release();
  arrival_.reset();
  held_ = c10::Storage();
}

bool SavedStorage::save_again(const Saved& saved, const RegionOptions& region) {
  const auto copied = copy_out(saved, region);
  if (!copied) return false;
  if (copied->zero()) return true;
  Runtime::instance().step().copied(site_, *copied);
  if (order_ != nullptr) order_->grew(site_, on_device_again().size());
  return true;
}

std::optional<Bytes> SavedStorage::copy_out(const Saved& saved, const RegionOptions& region) {
  const bool first = copy_.empty();
  const driver::SpanLog::Subject subject(site_.tag, number_);
  const Result<Bytes> copied = copy_.take(saved.bytes, saved.version, saved.stream);
  if (!copied.ok()) {
    if (log_enabled()) log("a saved tensor is not offloaded: " + copied.status().message());
    return std::nullopt;
  }
  if (copied.value().zero()) return Bytes{};
  if (!copy_.heap_knows()) {
    PendingSources& pending = PendingSources::instance();
    if (first) {
      pending.hold(saved.storage, copy_.last_written());
    } else {
      pending.extend(saved.storage, copy_.last_written());
    }
    // A budget counts memory when it is freed.
    if (region.budget) pending.bound(0);
    if (region.max_in_flight) pending.bound(*region.max_in_flight);
  } else if (region.max_in_flight == 0U) {
    check(driver::Timeline::wait(saved.stream, copy_.last_written()));
  }
  return copied.value();
}

void SavedStorage::before_release() {
  // Memory that is freed before its first use is still being written to.
  if (!arrival_ || arrival_->waited) return;
  static_cast<void>(driver::Timeline::wait(stream_of(arrival_->stream), arrival_->fence));
  arrival_->waited = true;
}

}  // namespace spillway
