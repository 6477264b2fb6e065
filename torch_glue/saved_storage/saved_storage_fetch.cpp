// SPDX-License-Identifier: Apache-2.0
// The way of a saved storage to the device: used where it is, fetched, or prefetched.
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
#include "torch_glue/saved_storage/saved_storage.h"
#include "torch_glue/saved_storage/skip.h"
#include "torch_glue/saved_storage/storage_table.h"
#include "torch_glue/saved_storage/unpack_order.h"

#include <ATen/SequenceNumber.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>

#include <mutex>
#include <utility>

namespace spillway {
namespace {

/// Alignment of both allocators' memory. Kernels may be selected by alignment, so a fetched copy
/// has the alignment of the original.
constexpr Bytes kBlockAlignment{512};

}  // namespace

ByteRange SavedStorage::on_device_again() const {
  const ByteRange saved = copy_.extent();
  return {saved.begin.rounded_down(kBlockAlignment), saved.end};
}

SharedStorage::OnDevice SavedStorage::fetch(std::uint64_t& round, const ByteRange& bytes) {
  const auto consumer = current_stream(device_.device().id);
  UnpackOrder* order = nullptr;
  OnDevice back;
  Site site;
  bool first = false;
  {
    const LightLock lock(mutex_);
    site = site_;
    first = used_first();
    back = use(round, bytes, consumer, order);
  }
  if (order != nullptr) order->used(site, this, consumer);
  if (first) on_first_use(device_, site, consumer);
  return back;
}

SharedStorage::OnDevice SavedStorage::use(std::uint64_t& round,
                                          const ByteRange& bytes,
                                          c10::cuda::CUDAStream consumer,
                                          UnpackOrder*& order) {
  if (waiting_ != nullptr) return {waiting_->storage, Bytes{}};
  if (auto alive = original()) return {alias(std::move(alive), consumer), Bytes{}};
  c10::Storage storage = arrived();
  if (!storage || !arrival_->bytes.contains(bytes))
    storage = fetch(consumer, CopyPriority::kDemand);
  use_on(consumer, storage);
  if (site_.watched) on_access(device_, site_);
  if (!arrival_->used) order = order_;
  arrival_->used = true;
  has_seen(round);
  return {std::move(storage), arrival_->bytes.begin};
}

bool SavedStorage::used_first() {
  if (site_.watched) report_misses_after_backward();
  if (std::exchange(used_, true)) return false;
  Runtime::instance().step().on_first_use(site_);
  if (waiting_ == nullptr && !copy_.empty()) return site_.watched;  // alias() checks its references
  const auto alive = original();
  // The references of its keepers: each handle or the waiting entry, and `alive`.
  const auto keepers = waiting_ != nullptr ? 1 : static_cast<std::size_t>(handles_);
  const bool others = alive && compat::holders(alive, *alive) > keepers + 1;
  if (others) Runtime::instance().step().on_event(StorageEvent::kAliveAtUnpack, site_, size_);
  if (!others && site_.referenced_elsewhere)
    Runtime::instance().step().on_event(StorageEvent::kUnreferenced, site_);
  return site_.watched;
}

void SavedStorage::kept_is_used() {
  Site site;
  bool first = false;
  {
    const LightLock lock(mutex_);
    site = site_;
    first = used_first();
  }
  if (first) on_first_use(device_, site, current_stream(device_.device().id));
}

bool SavedStorage::referenced_elsewhere(const c10::intrusive_ptr<c10::StorageImpl>& alive) {
  const std::size_t own = PendingSources::instance().holds(alive.get()) ? 2 : 1;
  return compat::holders(alive, *alive) > own;
}

c10::Storage SavedStorage::alias(c10::intrusive_ptr<c10::StorageImpl> alive,
                                 c10::cuda::CUDAStream consumer) {
  if (referenced_elsewhere(alive)) {
    // From here on its owner may write to it again.
    check(driver::Timeline::wait(stream_of(consumer), copy_.last_written()));
    copy_.set_offloaded(false);
    if (!alive_reported_)
      Runtime::instance().step().on_event(StorageEvent::kAliveAtUnpack, site_, size_);
    alive_reported_ = true;
  }
  return c10::Storage(std::move(alive));
}

c10::Storage SavedStorage::fetch(c10::cuda::CUDAStream consumer, CopyPriority priority) {
  drop_arrival();
  const ByteRange bytes = on_device_again();
  const auto device = static_cast<c10::DeviceIndex>(device_.device().id);
  std::optional<c10::cuda::CUDAGuard> guard;
  if (current_device() != device) guard.emplace(device);
  const TagScope tag(site_.tag);
  const driver::SpanLog::Subject subject(site_.tag, number_);
  auto* const allocator = c10::cuda::CUDACachingAllocator::get();
  c10::Storage storage(c10::Storage::use_byte_size_t{},
                       bytes.size().count(),
                       allocator->allocate(bytes.size().count()),
                       allocator,
                       /*resizable=*/true);
  if (site_.watched) {
    const Bytes still_offloaded =
        size_.rounded_up(kBlockAlignment) - bytes.size().rounded_up(kBlockAlignment);
    device_.curve().present(site_.step, site_.index, still_offloaded);
    device_.curve().watch(site_.step, address_of(storage), site_.index, bytes.size());
  }
  if (number_ != 0) {
    RunLog::instance().was_fetched(number_, device_.device().id, address_of(storage));
  }
  const auto fence =
      copy_.fetch(driver::DevicePtr(storage.data()), bytes.begin, stream_of(consumer), priority);
  check(fence.status());

  // No call below may fail.
  Runtime::instance().step().fetched(site_, copy_.size());
  arrival_.emplace(Arrival{.storage = storage.getWeakStorageImpl(),
                           .bytes = bytes,
                           .fence = fence.value(),
                           .stream = consumer});
  hold(storage);
  return storage;
}

bool SavedStorage::prefetch(c10::cuda::CUDAStream consumer) {
  const DeviceId device = device_.device().id;
  const LightLock lock(mutex_);
  if (copy_.empty() || handles_ == 0 || original() || arrived()) return false;
  const OptionalAllocation optional;
  try {
    const bool its_own = DeviceId{consumer.device_index()} == device;
    fetch(its_own ? consumer : current_stream(device), CopyPriority::kPrefetch);
    return true;
  } catch (const c10::Error& error) {
    static_cast<void>(error);  // it was only a prefetch
    return false;
  }
}

c10::Storage SavedStorage::arrived() const {
  if (!arrival_) return {};
  auto alive = arrival_->storage.lock();
  return alive ? c10::Storage(std::move(alive)) : c10::Storage();
}

void SavedStorage::use_on(c10::cuda::CUDAStream consumer, const c10::Storage& storage) {
  const driver::SpanLog::Subject subject(site_.tag, number_);
  check(driver::Timeline::wait(stream_of(consumer), arrival_->fence));
  if (consumer == arrival_->stream) {
    arrival_->waited = true;
  } else {
    c10::cuda::CUDACachingAllocator::get()->recordStream(storage.data_ptr(), consumer);
  }
}

}  // namespace spillway
