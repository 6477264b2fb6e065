// SPDX-License-Identifier: Apache-2.0
#include "torch_glue/saved_storage/pending_sources.h"

#include "torch_glue/base/streams.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <utility>

namespace spillway {
namespace {

/// PyTorch's own allocator calls this to reclaim memory before it requests more from the driver.
class GivePendingBack final : public c10::FreeMemoryCallback {
 public:
  bool Execute() override { return PendingSources::instance().poll(); }
};

}  // namespace

PendingSources& PendingSources::instance() {
  static auto* const sources = [] {
    c10::FreeCudaMemoryCallbacksRegistry()->Register(
        "spillway_pending_sources", [] { return std::make_unique<GivePendingBack>(); });
    return new PendingSources;
  }();
  return *sources;
}

void PendingSources::hold(c10::Storage storage, driver::Fence until) {
  const Lock lock(mutex_);
  const Bytes size{storage.nbytes()};
  bytes_ += size;
  bytes_peak_ = std::max(bytes_peak_, bytes_);
  held_.push_back({std::move(storage), size, until, std::this_thread::get_id()});
  any_ = true;
}

void PendingSources::extend(c10::Storage storage, driver::Fence until) {
  {
    const Lock lock(mutex_);
    const auto held = std::find_if(held_.rbegin(), held_.rend(), [&](const Held& one) {
      return one.storage.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl();
    });
    if (held != held_.rend()) {
      held->until = until;
      return;
    }
  }
  hold(std::move(storage), until);
}

void PendingSources::bound(std::size_t in_flight) {
  for (Held& held : pop_oldest_over(in_flight)) {
    const auto stream = current_stream(DeviceId{held.storage.device().index()});
    const Status waited = driver::Timeline::wait(stream_of(stream), held.until);
    if (!waited.ok()) {
      hold(std::move(held.storage), held.until);  // until it is observed to have passed
      continue;
    }
    // It may have been allocated on another stream, which has not waited.
    c10::cuda::CUDACachingAllocator::recordStream(held.storage.data_ptr(), stream);
  }
}

std::vector<PendingSources::Held> PendingSources::pop_oldest_over(std::size_t in_flight) {
  const Lock lock(mutex_);
  const auto mine = std::this_thread::get_id();
  auto count = static_cast<std::size_t>(std::count_if(
      held_.begin(), held_.end(), [&](const Held& held) { return held.saved_by == mine; }));
  std::vector<Held> beyond;
  std::erase_if(held_, [&](Held& held) {
    if (held.saved_by != mine || count <= in_flight) return false;
    --count;
    bytes_ -= held.size;
    beyond.push_back(std::move(held));
    return true;
  });
  any_ = !held_.empty() || !leaving_.empty();
  return beyond;
}

bool PendingSources::poll_held() {
  c10::SmallVector<c10::Storage, 4> passed;  // freed after the lock: freeing calls into PyTorch
  c10::SmallVector<const c10::StorageImpl*, 4> storages;
  {
    const Lock lock(mutex_);
    std::erase_if(held_, [&](Held& held) {
      if (!driver::Timeline::passed(held.until)) return false;
      bytes_ -= held.size;
      leaving_.push_back(held.storage.getWeakStorageImpl());
      storages.push_back(held.storage.unsafeGetStorageImpl());
      passed.push_back(std::move(held.storage));
      return true;
    });
    any_ = !held_.empty() || !leaving_.empty();
  }
  if (passed.empty()) return false;
  for (c10::Storage& storage : passed)
    storage = c10::Storage();
  const Lock lock(mutex_);
  for (const c10::StorageImpl* const storage : storages) {
    leaving_.erase(std::find_if(leaving_.begin(), leaving_.end(), [&](const auto& leaving) {
      return leaving._unsafe_get_target() == storage;
    }));
  }
  any_ = !held_.empty() || !leaving_.empty();
  return true;
}

bool PendingSources::holds(const c10::StorageImpl* storage) const {
  if (!any_) return false;
  const Lock lock(mutex_);
  return std::any_of(
             held_.begin(),
             held_.end(),
             [&](const Held& held) { return held.storage.unsafeGetStorageImpl() == storage; }) ||
         std::any_of(leaving_.begin(), leaving_.end(), [&](const auto& leaving) {
           return leaving._unsafe_get_target() == storage;
         });
}

Bytes PendingSources::bytes() const {
  const Lock lock(mutex_);
  return bytes_;
}

Bytes PendingSources::bytes_peak() const {
  const Lock lock(mutex_);
  return bytes_peak_;
}

}  // namespace spillway
